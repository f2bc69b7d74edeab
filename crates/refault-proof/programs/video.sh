# A made picture encoded, decoded and hashed.
set -e
ffmpeg -v error -f lavfi -i testsrc=size=640x360:rate=25:duration=3 -c:v mpeg4 -threads 2 -bitexact -f avi -y video.$$ </dev/null
ffmpeg -v error -i video.$$ -f md5 - </dev/null
rm -f video.$$
