pragma cache_size = -200000;
create table entries (number integer primary key, text text, key int);
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n < 250000)
insert into entries select n, printf('%060d', n), (n * 7919) % 100003 from numbers;
create index keys on entries (key);
select count(*), sum(length(text)) from entries where key < 50000;
select text from entries order by key, number limit 3 offset 120000;
delete from entries where number % 3 = 0;
vacuum;
pragma integrity_check;
