"""The audit of a table larger than memory: one pass over all rows, sums that add up, a sample to learn from.

`source` reads parquet files some rows at a time. `counting` turns rows into `sums`, which add up over
batches, shards and machines: reliability, accuracy, log loss, groups and ECEs rest on all rows. `sample`
draws rows by a hash of their numbers, so that no batch size and no sharding changes it: what is learned or
sorted rests on them. `whole` puts both into one report. With no more rows than the sample takes, the sample
is the table, and the report is the one that the audit in memory gives.
"""
