%% Processes that keep binaries and lists, an ets table, and a sort.
-module(table).
-export([main/0]).
main() ->
    Count = 100000,
    Table = ets:new(table, [set, public, {write_concurrency, true}]),
    Parent = self(),
    [spawn(fun() ->
        [ets:insert(Table, {I, lists:duplicate(10, I rem 251), integer_to_binary(I * 7919)}) || I <- lists:seq(Part, Count, 4)],
        Parent ! {done, Part}
     end) || Part <- [1, 2, 3, 4]],
    [receive {done, Part} -> ok end || Part <- [1, 2, 3, 4]],
    Sum = lists:foldl(fun(I, Sum) ->
        [{_, List, Binary}] = ets:lookup(Table, 1 + (I * 7919) rem Count),
        (Sum * 31 + lists:sum(List) + byte_size(Binary)) rem 1000000007
    end, 0, lists:seq(1, Count)),
    Sorted = lists:sort([(I * 7919) rem 100003 || I <- lists:seq(1, 3 * Count)]),
    io:format("~p ~p ~p~n", [Sum, ets:info(Table, size), lists:nth(Count, Sorted)]),
    halt(0).
