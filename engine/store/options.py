"""How RocksDB is tuned: many small stores in one process, little memory and little disk for each.

All stores of a process share one block cache and one budget for unflushed writes.
"""

from __future__ import annotations

from functools import cache

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

from ..ports.store import Family

_KIB, _MIB = 1024, 1024 * 1024
_BLOCK_CACHE_BYTES = 64 * _MIB
_UNFLUSHED_BYTES = 96 * _MIB
_BLOCK_BYTES = 8 * _KIB
_BLOOM_BITS = 10
#: Bounds the disk that a store's write-ahead log takes; the families it covers are flushed beyond it.
_WAL_BYTES = 8 * _MIB
_OPEN_FILES = 128
_DICTIONARY_BYTES = 16 * _KIB
#: Families whose keys come and go: deletions are compacted away early, or scans would wade through them.
_QUEUES = frozenset({Family.READY, Family.TIMERS, Family.RUNNING, Family.MARKS})
_DELETIONS = (4096, 2048)  # within how many entries, how many of them deleted, a file is compacted
_SMALL = _QUEUES | {Family.META, Family.LEASES, Family.QUARANTINES, Family.SCHEDULES}


@cache
def _block_cache() -> Cache:
    return Cache(_BLOCK_CACHE_BYTES)


@cache
def _unflushed() -> WriteBufferManager:
    return WriteBufferManager(_UNFLUSHED_BYTES, False)


def _database(wal_bytes: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_max_background_jobs(2)
    options.set_max_open_files(_OPEN_FILES)
    options.set_write_buffer_manager(_unflushed())
    options.set_max_total_wal_size(wal_bytes)
    options.set_manifest_preallocation_size(4 * _KIB)
    options.set_max_manifest_file_size(_MIB)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_skip_stats_update_on_db_open(True)
    return options


def _table(options: Options) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(_block_cache())
    table.set_block_size(_BLOCK_BYTES)
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_format_version(5)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    options.set_bottommost_compression_options(-14, 3, 0, _DICTIONARY_BYTES, True)
    options.set_bottommost_zstd_max_train_bytes(100 * _DICTIONARY_BYTES, True)
    options.set_level_compaction_dynamic_level_bytes(True)
    return options


def database() -> Options:
    """A store's own options; its default family holds nothing."""
    return _database(_WAL_BYTES)


def families() -> dict[str, Options]:
    """The options of each family's column."""
    return {family.value: _family(family) for family in Family}


def _family(family: Family) -> Options:
    options = _table(Options(raw_mode=True))
    options.set_write_buffer_size((2 if family in _SMALL else 8) * _MIB)
    options.set_arena_block_size(64 * _KIB)
    options.set_max_bytes_for_level_base(32 * _MIB)
    options.set_target_file_size_base(16 * _MIB)
    if family in _QUEUES:
        options.add_compact_on_deletion_collector_factory(*_DELETIONS, 0.5)
    return options


def overlay() -> Options:
    """An overlay's options: one column for all families, since many overlays are made and few of them grow.

    With a single column the bound on the write-ahead log only bounds what is allotted for it beforehand.
    """
    options = _table(_database(64 * _KIB))
    options.set_write_buffer_size(2 * _MIB)
    options.set_arena_block_size(32 * _KIB)
    return options


def reading(options: Options, scratch: str) -> Options:
    """The same for a reader: files stay open, since an owner may delete them, and notes go to `scratch`."""
    options.set_max_open_files(-1)
    options.set_db_log_dir(scratch)
    return options
