//! Redis's commands: which of their words are keys, and whether they write them. As the servers of versions 7 and 8 say it
//! themselves (`COMMAND`).

/// What is known of a command.
pub(super) enum Known {
    Keys(Command),
    /// All its words are keys that go.
    Deletion,
    WithoutKeys,
}

/// Which words are keys.
#[derive(Clone, Copy)]
enum Where {
    /// One, behind this many others.
    At(usize),
    /// All from one on.
    From(usize),
    /// Every second.
    Pairs,
    FirstTwo,
    /// All but the last, which is a time.
    ButLast,
    /// As many as the word at this place says, behind it.
    Counted(usize),
    /// The first, and as many as the second word says.
    FirstAndCounted,
    /// The first half of those behind `STREAMS`.
    Streams,
}

/// Which keys are written.
#[derive(Clone, Copy)]
enum Writes {
    None,
    All,
    First,
    Last,
}

#[derive(Clone, Copy)]
pub(super) struct Command {
    keys: Where,
    writes: Writes,
}

/// Names between blanks.
const COMMANDS: [(&str, Where, Writes); 20] = [
    (
        " get strlen getrange substr getbit bitcount bitpos bitfield_ro hget hmget hgetall hexists hlen hkeys hvals \
         hstrlen hrandfield hscan httl hpttl hexpiretime hpexpiretime lrange llen lindex lpos scard smembers sismember \
         smismember srandmember sscan zrange zrangebyscore zrevrange zrevrangebyscore zrangebylex zrevrangebylex zscore \
         zmscore zcard zcount zlexcount zrank zrevrank zrandmember zscan geohash geopos geodist geosearch georadius_ro \
         georadiusbymember_ro sort_ro xrange xrevrange xlen xpending type ttl pttl expiretime pexpiretime dump json.get \
         json.type ",
        Where::At(0),
        Writes::None,
    ),
    (
        " set setex psetex setnx getset append setrange setbit incr incrby incrbyfloat decr decrby bitfield hset hmset \
         hsetnx hincrby hincrbyfloat hdel hsetex hgetex hgetdel hexpire hpexpire hexpireat hpexpireat hpersist lpush \
         rpush lpushx rpushx lpop rpop lset linsert lrem ltrim sadd srem spop zadd zincrby zrem zpopmin zpopmax \
         zremrangebyscore zremrangebyrank zremrangebylex geoadd georadius georadiusbymember sort xadd xtrim xdel xack \
         xautoclaim xclaim xsetid pfadd getex getdel expire pexpire expireat pexpireat persist move restore \
         restore-asking json.set ",
        Where::At(0),
        Writes::All,
    ),
    (" object memory xinfo ", Where::At(1), Writes::None),
    (" xgroup ", Where::At(1), Writes::All),
    (" exists touch mget sinter sunion sdiff pfcount ", Where::From(0), Writes::None),
    (" pfmerge sinterstore sunionstore sdiffstore ", Where::From(0), Writes::First),
    (" bitop ", Where::From(1), Writes::First),
    (" mset msetnx ", Where::Pairs, Writes::All),
    (" lcs ", Where::FirstTwo, Writes::None),
    (" rename renamenx lmove blmove rpoplpush brpoplpush smove ", Where::FirstTwo, Writes::All),
    (" zrangestore geosearchstore ", Where::FirstTwo, Writes::First),
    (" copy ", Where::FirstTwo, Writes::Last),
    (" blpop brpop bzpopmin bzpopmax ", Where::ButLast, Writes::All),
    (" zunion zinter zdiff sintercard zintercard ", Where::Counted(0), Writes::None),
    (" lmpop zmpop ", Where::Counted(0), Writes::All),
    (" blmpop bzmpop ", Where::Counted(1), Writes::All),
    (" zunionstore zinterstore zdiffstore ", Where::FirstAndCounted, Writes::First),
    (" xread ", Where::Streams, Writes::None),
    (" xreadgroup ", Where::Streams, Writes::All),
    (" json.mget ", Where::ButLast, Writes::None),
];

const DELETES: &str = " del unlink ";
const WITHOUT_KEYS: &str = " ping echo auth hello quit reset select swapdb client command config info debug monitor slowlog \
    latency memory acl module role replicaof slaveof replconf psync sync wait waitaof failover lastsave save bgsave \
    bgrewriteaof shutdown time dbsize keys scan randomkey flushall flushdb subscribe psubscribe ssubscribe unsubscribe \
    punsubscribe sunsubscribe publish spublish pubsub multi exec discard watch unwatch eval eval_ro evalsha evalsha_ro \
    script fcall fcall_ro function cluster readonly readwrite asking ";
/// Words behind a command of several, whose next word is a key.
const WITH_KEY: [&[u8]; 12] = [
    b"encoding",
    b"freq",
    b"idletime",
    b"refcount",
    b"usage",
    b"stream",
    b"groups",
    b"consumers",
    b"create",
    b"setid",
    b"destroy",
    b"createconsumer",
];

/// What is known of a command with a name in small letters.
pub(super) fn known(name: &str) -> Option<Known> {
    let is_of = |names: &str| names.contains(&format!(" {name} "));
    if is_of(DELETES) {
        return Some(Known::Deletion);
    }
    let found = COMMANDS.iter().find(|(names, ..)| is_of(names));
    let found = found.map(|(_, keys, writes)| Known::Keys(Command { keys: *keys, writes: *writes }));
    found.or(is_of(WITHOUT_KEYS).then_some(Known::WithoutKeys))
}

/// Commands that give their key, or a field of it, a time to live.
const EXPIRES: &str = " setex psetex expire pexpire expireat pexpireat hexpire hpexpire hexpireat hpexpireat ";
/// Those that do where one of [`LIVES`] stands behind the key.
const MAY_EXPIRE: &str = " set getex hsetex hgetex ";
const LIVES: [&[u8]; 4] = [b"ex", b"px", b"exat", b"pxat"];

/// Whether a command with a name in small letters gives what it writes a time to live.
pub(super) fn sets_time_to_live(name: &str, words: &[&[u8]]) -> bool {
    let is_of = |names: &str| names.contains(&format!(" {name} "));
    // The word behind `SET` and its key is a value.
    let options = words.get(if name == "set" { 2 } else { 1 }..).unwrap_or_default();
    let lives = |word: &&[u8]| LIVES.iter().any(|mark| mark.eq_ignore_ascii_case(word));
    match name {
        "restore" | "restore-asking" => words.get(1).is_some_and(|time| *time != b"0"),
        _ => is_of(EXPIRES) || is_of(MAY_EXPIRE) && options.iter().any(lives),
    }
}

impl Command {
    /// The keys among the words behind the name, and whether each is written; `None` if there are too few words.
    pub(super) fn keys<'a>(self, words: &[&'a [u8]]) -> Option<Vec<(&'a [u8], bool)>> {
        let counted = |at: usize| {
            let count: usize = std::str::from_utf8(words.get(at)?).ok()?.parse().ok()?;
            words.get(at + 1..at.checked_add(1)?.checked_add(count)?)
        };
        let keys: Vec<&[u8]> = match self.keys {
            // `OBJECT HELP` and `MEMORY STATS` have none.
            Where::At(1) if !WITH_KEY.contains(&&words.first()?.to_ascii_lowercase()[..]) => Vec::new(),
            Where::At(at) => vec![*words.get(at)?],
            Where::From(at) => words.get(at..)?.to_vec(),
            Where::Pairs => words.iter().step_by(2).copied().collect(),
            Where::FirstTwo => words.get(..2)?.to_vec(),
            Where::ButLast => words.split_last()?.1.to_vec(),
            Where::Counted(at) => counted(at)?.to_vec(),
            Where::FirstAndCounted => [&words[..1], counted(1)?].concat(),
            Where::Streams => {
                let start = words.iter().position(|word| word.eq_ignore_ascii_case(b"streams"))? + 1;
                words[start..start + (words.len() - start) / 2].to_vec()
            }
        };
        let last = keys.len().checked_sub(1);
        let is_written = |index: usize| match self.writes {
            Writes::None => false,
            Writes::All => true,
            Writes::First => index == 0,
            Writes::Last => Some(index) == last,
        };
        Some(keys.into_iter().enumerate().map(|(index, key)| (key, is_written(index))).collect())
    }
}
