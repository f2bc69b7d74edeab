-- A database in memory: 300,000 rows of some 100 bytes, an index on a scattered column, look-ups by a join, a group-by.
PRAGMA journal_mode = OFF;
CREATE TABLE item (id INTEGER PRIMARY KEY, scattered INTEGER, kind INTEGER, text TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
  INSERT INTO item SELECT i, (i * 2654435761) % 4294967296, i % 97,
    printf('%08x item %d of a list whose rows differ in little but their numbers %016x', (i * 40503) % 1000003, i, i * 1103515245)
  FROM n;
CREATE INDEX by_scattered ON item (scattered);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
  SELECT count(*), sum(length(item.text)), sum(item.id) FROM n JOIN item
    ON item.scattered = ((((i * 7919) % :rows) + 1) * 2654435761) % 4294967296;
SELECT kind % 7, count(*), max(text) FROM item GROUP BY kind % 7 ORDER BY 1;
