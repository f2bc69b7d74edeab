# A master with two workers that serves files over a socket.
set -e
home=$(mktemp -d)
chmod 755 "$home"
mkdir "$home/www"
for i in $(seq 20); do head -c 200000 /dev/zero | tr '\0' "$(printf "\\$(printf %o $((64 + i)))")" >"$home/www/$i"; done
cat >"$home/conf" <<C
worker_processes 2; daemon off; pid $home/pid; error_log /dev/null;
events {}
http { access_log off; gzip on; gzip_types *; client_body_temp_path $home; proxy_temp_path $home; fastcgi_temp_path $home; uwsgi_temp_path $home; scgi_temp_path $home;
  server { listen unix:$home/s; root $home/www; } }
C
nginx -c "$home/conf" &
server=$!
for _ in $(seq 100); do [ -S "$home/s" ] && break; sleep 0.1; done
for _ in 1 2 3; do for i in $(seq 20); do curl -s --compressed --unix-socket "$home/s" "http://h/$i"; done; done | md5sum
kill -QUIT $server
wait $server || true
rm -rf "$home"
