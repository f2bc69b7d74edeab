# Tries all that the window of refault serve has for those who know the token, and the token's file. Arguments: address,
# file, number of a member's process. Prints each answer with its code.
exec 2>&1
cat "$2"
for path in metrics api/pools api/events; do
    curl -s -m 5 -w ' %{http_code}\n' "http://$1/$path"
done
for body in '{"pool":"web","pid":'"$3"',"bytes":8388608}' '{"pool":"web","pid":'"$3"'}'; do
    for header in 'X-Refault: 1' 'Authorization: Bearer 0' 'Cookie: token=0'; do
        curl -s -m 5 -w ' %{http_code}\n' -H "$header" -H 'Content-Type: application/json' -d "$body" \
            "http://$1/api/budget"
    done
done
