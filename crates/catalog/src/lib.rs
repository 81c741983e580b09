//! What is on which volume: SQLite for volumes, objects and extents; Parquet for file indexes.
