# A repository made here, packed twice, cloned, checked.
set -e
home=$(mktemp -d)
cd "$home"
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' HOME="$home"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main first
cd first
for round in $(seq 15); do
    for file in $(seq 10); do awk -v r="$round" -v f="$file" 'BEGIN { for (i = 0; i < 3000; i++) print f, i, (i % 50 < r) ? r * i : i }' >"file$file"; done
    git add . && git commit -qm "round $round"
done
git repack -qadf --depth=50 --window=50
cd ..
git clone -q --no-hardlinks first second
cd second
git gc -q --aggressive --prune=now
git fsck --no-progress 2>&1 | (grep -v dangling || true)
git log --format=%H | md5sum
git diff "$(git rev-list --max-parents=0 HEAD)" HEAD | md5sum
cd /
rm -rf "$home"
