"""What the program in the kernel reports, as rows of tables. Part of scripts/ask-kernel."""

import re
import sys

PAGE = 4096
# Counters of the whole machine and of a group, as the tables have them.
MACHINE_COUNTERS = (
    "pgmajfault workingset_refault_anon workingset_refault_file workingset_activate_anon workingset_activate_file"
    " workingset_restore_anon workingset_restore_file workingset_nodereclaim pswpin pswpout"
).split()
GROUP_COUNTERS = (
    "pgscan pgsteal pgscan_kswapd pgscan_direct pgsteal_kswapd pgsteal_direct pgactivate pgdeactivate pgrefill"
).split()
LISTS = "inactive_anon active_anon inactive_file active_file unevictable".split()
MACHINE_COLUMNS = (
    "kernel lru_mode cell icount repeat record managed min low high free cpu_free inactive_anon active_anon inactive_file"
    " active_file unevictable accesses loads first_touches file_reads pswpin pswpout workingset_refault_anon"
    " workingset_refault_file workingset_activate_anon workingset_activate_file workingset_restore_anon"
    " workingset_restore_file workingset_nodereclaim pgscan_kswapd pgscan_direct pgsteal_kswapd pgsteal_direct"
    " pgactivate pgdeactivate pgrefill pageoutrun allocstall swap_ra swap_ra_hit nr_dirtied nr_written"
    " nr_vmscan_write nr_vmscan_immediate_reclaim oom_kill content_errors task_us kswapd_us generations"
).split()
LRU_SORT_COLUMNS = (
    "kernel lru_mode cell icount repeat record nr_lru_sort_tried_hot_regions bytes_lru_sort_tried_hot_regions"
    " nr_lru_sorted_hot_regions bytes_lru_sorted_hot_regions nr_hot_quota_exceeds nr_lru_sort_tried_cold_regions"
    " bytes_lru_sort_tried_cold_regions nr_lru_sorted_cold_regions bytes_lru_sorted_cold_regions nr_cold_quota_exceeds"
).split()
STEP_COLUMNS = (
    "kernel lru_mode cell repeat record group usage anon file inactive_anon active_anon inactive_file active_file loads"
    " workingset_refault_anon workingset_refault_file workingset_activate_anon workingset_activate_file"
    " workingset_restore_anon workingset_restore_file pswpin pswpout file_reads pgscan pgsteal pgactivate pgdeactivate"
    " pgrefill low_events max_events generations"
).split()


def parse(text):
    """Records in order, each a dict of parts by name; remarks on steps; what groups hold besides the data."""
    records, groups, remarks, part = [], {}, [], None
    for line in text.splitlines():
        if line.startswith("#record "):
            records.append((line.split()[1], {}))
        elif line.startswith("#group "):
            words = line.split()
            groups[words[1]] = {"own": int(words[3]), "extra": int(words[5])}
        elif line.startswith("#"):
            remarks.append(line[1:])
        elif line.startswith("@"):
            part = records[-1][1].setdefault(line[1:], [])
        elif part is not None:
            part.append(line)
    return {"records": records, "groups": groups, "remarks": remarks}


def numbers(part):
    pairs = (line.split() for line in part)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].lstrip("-").isdigit()}


def disk_reads(record):
    """Pages that the disk read: sectors of 512 bytes."""
    return int(record["disk"][0].split()[2]) * 512 // PAGE


def changed(after, before, name):
    return after.get(name, 0) - before.get(name, 0)


def result_row(kernel, lists, config, repeat, cell, report):
    """A row of results.csv. Columns that this program does not measure stay empty."""
    (_, before), (_, after) = report["records"][0], report["records"][-1]
    workload, (label, limit) = cell.workloads[0], cell.limit
    machine = [numbers(record["vmstat"]) for record in (after, before)]
    group = [numbers(record["memory.stat g"]) for record in (after, before)]
    task, own = numbers(after["task t"]), report["groups"]["g"]
    reads = disk_reads(after) - disk_reads(before)
    row = {
        "kernel": kernel.version, "lru_mode": lists, "config": config, "workload": workload.name,
        "family": workload.family, "limit": label, "swappiness": cell.settings["swappiness"],
        "footprint_pages": workload.anon + workload.file, "limit_pages": limit,
        "limit_bytes": (limit + own["extra"]) * PAGE + own["own"], "own_pages": own["own"] // PAGE,
        "accesses": task["done"], "repeat": repeat, "first_touch_anon": task["first_touches"], "file_reads": reads,
        "content_errors": task["errors"],
        "resident_anon_end": changed(*group, "anon") // PAGE, "resident_file_end": changed(*group, "file") // PAGE,
    }
    row |= {name: changed(*machine, name) for name in MACHINE_COUNTERS}
    row |= {name: changed(*group, name) for name in GROUP_COUNTERS}
    row["loads"] = row["pswpin"] + reads
    row["misses"] = row["loads"] + task["first_touches"]
    row["oom_kill"] = changed(*(numbers(record["memory.events g"]) for record in (after, before)), "oom_kill")
    row["events_max"] = changed(*(numbers(record["memory.events g"]) for record in (after, before)), "max")
    return row


def step_rows(kernel, lists, repeat, cell, report):
    """A row for each record and group; counters since the first record, sizes as they are without the tasks' own."""
    _, before = report["records"][0]
    for label, after in report["records"][1:]:
        for name in cell.groups:
            group = [numbers(record[f"memory.stat {name}"]) for record in (after, before)]
            machine = [numbers(record["vmstat"]) for record in (after, before)]
            events = [numbers(record[f"memory.events {name}"]) for record in (after, before)]
            row = {"kernel": kernel.version, "lru_mode": lists, "cell": cell.name, "repeat": repeat, "record": label,
                   "group": name}
            row |= {part: changed(*group, part) // PAGE
                    for part in "anon file inactive_anon active_anon inactive_file active_file".split()}
            row["usage"] = row["anon"] + row["file"]
            counted = ("workingset_", "pgscan", "pgsteal", "pgactivate", "pgdeactivate", "pgrefill")
            row |= {column: changed(*group, column) for column in STEP_COLUMNS if column.startswith(counted)}
            row["file_reads"] = disk_reads(after) - disk_reads(before)
            # Groups count swapping by themselves from 6.13 on; before, only the whole machine does.
            row |= {part: changed(*group, part) if part in group[0] else changed(*machine, part)
                    for part in ["pswpin", "pswpout"]}
            row["loads"] = changed(*machine, "pswpin") + row["file_reads"]
            row["low_events"], row["max_events"] = changed(*events, "low"), changed(*events, "max")
            row["generations"] = generations(after.get(f"generations {name}", []), lists)
            yield row


def machine_rows(kernel, lists, repeat, cell, options, report):
    """A row for each record, the start's as well: sizes as they are, counters since the start."""
    _, before = report["records"][0]
    for label, after in report["records"]:
        machine = [numbers(record["vmstat"]) for record in (after, before)]
        row = {"kernel": kernel.version, "lru_mode": lists, "cell": cell.name, "icount": options.icount,
               "repeat": repeat, "record": label}
        row |= zone(after["zoneinfo"])
        row |= {name: machine[0][f"nr_{name}"] for name in LISTS}
        row["file_reads"] = disk_reads(after) - disk_reads(before)
        row |= {name: changed(*machine, name) for name in MACHINE_COLUMNS if name in machine[0]}
        row["allocstall"] = sum(changed(*machine, name) for name in machine[0] if name.startswith("allocstall"))
        row["loads"] = row["pswpin"] + row["file_reads"]
        tasks = [numbers(part) for name, part in after.items() if name.startswith("task ")]
        row["accesses"] = sum(task["done"] for task in tasks)
        row["first_touches"] = sum(task["first_touches"] for task in tasks)
        row["content_errors"] = sum(task["errors"] for task in tasks)
        spent = [numbers(record["kswapd"])["cpu"] // 1000 for record in (after, before)]
        row["task_us"], row["kswapd_us"] = sum(task["cpu"] for task in tasks) // 1000, spent[0] - spent[1]
        row["generations"] = generations(after.get("generations -", []), lists)
        yield row


def zone(lines):
    """Pages of the only zone that has any: managed, free, marks, and free pages that the CPU keeps for itself."""
    zones, row = [], {}
    for words in (line.split() for line in lines):
        if words[:1] == ["Node"] and "zone" in words:
            row = {}
            zones.append(row)
        elif words[:2] == ["pages", "free"]:
            row["free"] = int(words[2])
        elif len(words) == 2 and words[0] in ("min", "low", "high", "managed"):
            row.setdefault(words[0], int(words[1]))
        elif words[:1] == ["count:"]:
            row["cpu_free"] = int(words[1])
    zones = [row for row in zones if row.get("managed")]
    if len(zones) != 1:
        sys.exit(f"ask-kernel: the machine has {len(zones)} zones with pages, not one")
    return zones[0]


def generations(listing, lists):
    """seq:anon:file of each generation, oldest first."""
    rows = [line.split() for line in listing if re.match(r"\s*\d", line)]
    return " ".join(f"{row[0]}:{row[2]}:{row[3]}" for row in rows) if lists == "mglru" else ""
