(* A hash table of strings and a map, with the collector's compaction in the middle. *)
module Strings = Map.Make (String)

let count = 150_000

let () =
  let table = Hashtbl.create 16 in
  for i = 0 to count - 1 do Hashtbl.replace table i (String.make 60 'a' ^ string_of_int i) done;
  Gc.compact ();
  let digest = ref 0 in
  for i = 0 to count - 1 do
    digest := (!digest * 31 + String.length (Hashtbl.find table (i * 7919 mod count))) mod 1_000_000_007
  done;
  let map = Hashtbl.fold (fun key value map -> Strings.add value key map) table Strings.empty in
  Printf.printf "%d %d %s\n" !digest (Strings.cardinal map) (fst (Strings.min_binding map))
