"""Every bound of the collector, named, with its reason. One section per room.

Where a number comes from the original project it is kept, so that what we accept its validator accepts too.
"""

from __future__ import annotations

# --- records -------------------------------------------------------------------------------------------------------

RECORD_MAX_BYTES = 16 * 1024 * 1024
"""One record file; the original's command line reads contract files up to 16 MiB."""
RECORD_MAX_DEPTH = 64
RECORD_MAX_KEYS = 131_072
RECORD_MAX_ITEMS = 100_000
RECORD_MAX_TOKENS = 2_000_000
RECORD_MAX_STRING = 1024 * 1024
RECORD_MAX_NUMBER = 128

# --- contracts (original project, sections 2.5 and 3) --------------------------------------------------------------

RECORD_FILE_MAX_BYTES = 128 * 1024 * 1024
"""A file of many records, one per line."""
MAX_ATTEMPTS = 8
"""Transport attempts of one execution; more would hide an overloaded server."""
MAX_SLICES = 64
MAX_PROFILES = 16
MAX_CAPABILITY_RECEIPTS = 16
MAX_PROVIDER_VALUES = 32
"""Timings and metrics that a server reports about itself, each."""
MAX_REPLAY_ROWS = 10_000
"""Replayed rows of one candidate in a decision of engine v2; ours keeps none."""
MAX_TRUSTED_ENDPOINTS = 64
MAX_TRUSTED_ROUTES = 128
MAX_ALLOWLIST_ITEMS = 256
MAX_REQUEST_DURATION_MS = 300_000
MAX_ORIGIN_LENGTH = 2_048
MAX_PATH_LENGTH = 2_048
MAX_STORE_ROOT_LENGTH = 4_096
MAX_CONTROLLER_EVENTS = 10_000
MAX_CONTROLLER_ASSESSMENTS = 256
MAX_CONTROLLER_WINDOWS = 64
MAX_CONTROLLER_WINDOW_REVISIONS = 256
"""Revisions of all windows of one controller together."""
MIN_HMAC_KEY_BYTES = 32
"""A shorter key would be weaker than the SHA-256 it is used with."""
MAX_PAYLOAD_IDENTITY_BYTES = 16 * 1024 * 1024

# --- HTTP limits of one call (original project, section 2.5) -------------------------------------------------------

HTTP_DEFAULTS = {
    "max_request_bytes": 1_048_576,
    "max_response_header_bytes": 16_384,
    "max_response_headers": 64,
    "max_response_bytes": 8_388_608,
    "max_response_chunks": 4_096,
    "max_secret_header_bytes": 8_192,
    "connect_timeout_ms": 5_000,
    "headers_timeout_ms": 10_000,
    "body_timeout_ms": 10_000,
    "deadline_ms": 30_000,
}
"""What a call may take where the study says nothing."""
HTTP_CEILINGS = {
    "max_request_bytes": 1_048_576,
    "max_response_header_bytes": 16_384,
    "max_response_headers": 256,
    "max_response_bytes": 8_388_608,
    "max_response_chunks": 16_384,
    "max_secret_header_bytes": 16_384,
    "connect_timeout_ms": 30_000,
    "headers_timeout_ms": 60_000,
    "body_timeout_ms": 60_000,
    "deadline_ms": 300_000,
}
"""What a study may raise them to: the original's ceilings for inference calls."""

# --- wire ----------------------------------------------------------------------------------------------------------
# Defaults are the original's; each `*_HARD` is the most that its codecs accept and a caller may raise a default to.

JSON_MAX_BYTES = 8 * 1024 * 1024
"""One whole JSON response."""
JSON_MAX_DEPTH = 32
JSON_MAX_KEYS = 65_536
JSON_MAX_ITEMS = 65_536
JSON_MAX_TOKENS = 524_288
JSON_MAX_STRING = 8 * 1024 * 1024
JSON_MAX_NUMBER = 128
JSON_DEPTH_HARD = 64
"""Nested containers; far below the depth at which any parser of ours recurses out of its stack."""
JSON_BYTES_HARD = 16 * 1024 * 1024
JSON_KEYS_HARD = 131_072
JSON_ITEMS_HARD = 131_072
JSON_TOKENS_HARD = 2_000_000
"""The original's command line allows contract files that many; its stream codecs 1 048 576."""
JSON_STRING_HARD = 16 * 1024 * 1024
JSON_NUMBER_HARD = 1_024
JSON_EVENT_MAX_BYTES = 1024 * 1024
"""One JSON document inside a stream: the payload of an SSE event, or an NDJSON row."""

# --- cases and windows ---------------------------------------------------------------------------------------------

CASE_MAX_BYTES = 4 * 1024 * 1024
"""One line of a case file; a prompt may have 524,288 characters of up to 4 bytes, and JSON escapes."""
MAX_CASES = 10_000
MAX_MESSAGES = 64
MAX_MESSAGE_CHARACTERS = 65_536
MAX_PROMPT_CHARACTERS = 524_288
MAX_LOGICAL_EXECUTIONS = 1_000_000
START_WAIT_S = 60.0
"""A run started early waits at most this long for the window's start, else it refuses."""
STANDING_LOOK_EVERY_S = 5.0
"""A running window looks at its authorization and keys this often before it sends: so much may leave after a revocation."""
MAX_RETRY_BACKOFF_S = 2.0
"""Between attempts of an execution that was proved not sent."""

# --- journal -------------------------------------------------------------------------------------------------------

JOURNAL_RECORD_MAX_BYTES = 4 * 1024 * 1024
"""One journal record. An accepted record is a trace envelope with its timeline; 16,384 token events stay below 1 MiB."""
JOURNAL_TRACE_ID_MAX_CHARACTERS = 128
"""Trace ids are slugs or digests; one byte holds the length."""
JOURNAL_SEGMENT_BYTES = 16 * 1024 * 1024
"""A segment is left for the next one beyond this size: a reader holds one segment in memory. glibc gives what is beyond
32 MiB back to the system at once, and new pages for every segment make reading it take six times as long."""
JOURNAL_GROW_BYTES = 8 * 1024 * 1024
"""Space is reserved in steps of this size; the step is written with zeros, so a commit changes no file metadata."""
JOURNAL_TEAR_BYTES = 512
"""Unit in which a disk persists a write: a torn write leaves a prefix of whole sectors."""
JOURNAL_GATHER_MAX_SECONDS = 0.01
"""Longest time that a commit waits for tasks to append again, on a disk whose sync takes longer than that."""
JOURNAL_MAX_SEGMENTS = 999_999
"""Six digits in a segment's file name."""

# --- transport -----------------------------------------------------------------------------------------------------

MAX_DNS_ANSWERS = 32
"""Answers of one lookup; every one is checked."""
MAX_STUCK_LOOKUPS = 64
"""Lookups that may be running or left behind at once: ``getaddrinfo`` cannot be cancelled, so a dead resolver must not eat threads."""
MAX_CONTENT_TYPE_LENGTH = 512
MAX_RETRY_AFTER_S = 86_400
"""A larger ``Retry-After`` is recorded as this; it is never obeyed by itself."""
TAIL_GRACE_MS = 5
"""How long a complete response is watched for bytes after its end, or for the peer's close."""
TIMING_FLAG_NS = 3_000_000
"""A first token whose arrival is known less exactly than this flags its trace."""
MAX_INTERIM_HEADS = 16
"""Interim (1xx) heads before an answer; more are a flood, however small they are."""
READ_BYTES = 65_536
"""Most bytes of one read; also what a hostile response can exceed a limit by."""

# wire: streams. Default / hard maximum as the original has them.
SSE_MAX_BYTES = 8 * 1024 * 1024
SSE_MAX_CHUNKS = 16_384
SSE_MAX_LINES = 65_536
SSE_MAX_LINE_BYTES = 256 * 1024
SSE_MAX_EVENTS = 32_768
SSE_MAX_EVENT_BYTES = 1024 * 1024
SSE_MAX_FIELD_BYTES = 256 * 1024
SSE_MAX_RETRY_MS = 86_400_000
"""One day; a longer reconnection time is ignored, as an unreadable one is. We never reconnect."""
SSE_BYTES_HARD = 16 * 1024 * 1024
SSE_CHUNKS_HARD = 131_072
"""The original's stream readers allow one chunk per 1 024 bytes up to this number."""
SSE_LINES_HARD = 262_144
SSE_LINE_BYTES_HARD = 1024 * 1024
SSE_EVENTS_HARD = 65_536
SSE_EVENT_BYTES_HARD = 16 * 1024 * 1024
SSE_FIELD_BYTES_HARD = 1024 * 1024
SSE_RETRY_MS_HARD = 604_800_000
NDJSON_MAX_BYTES = 8 * 1024 * 1024
NDJSON_MAX_CHUNKS = 16_384
NDJSON_MAX_LINE_BYTES = 1024 * 1024
NDJSON_MAX_ITEMS = 32_768
NDJSON_MAX_DEPTH = 16
NDJSON_MAX_KEYS = 512
NDJSON_MAX_ARRAY_ITEMS = 4_096
NDJSON_MAX_TOKENS = 32_768
NDJSON_BYTES_HARD = 16 * 1024 * 1024
NDJSON_CHUNKS_HARD = 131_072
NDJSON_LINE_BYTES_HARD = 16 * 1024 * 1024
NDJSON_ITEMS_HARD = 65_536

# wire: one Prometheus scrape. Default / hard maximum as the original has them.
PROMETHEUS_MAX_BYTES = 4 * 1024 * 1024
PROMETHEUS_MAX_LINES = 65_536
PROMETHEUS_MAX_LINE_BYTES = 64 * 1024
PROMETHEUS_MAX_SAMPLES = 65_536
PROMETHEUS_MAX_LABELS = 32
PROMETHEUS_MAX_NAME = 256
PROMETHEUS_MAX_LABEL_NAME = 128
PROMETHEUS_MAX_LABEL_VALUE = 4_096
PROMETHEUS_BYTES_HARD = 8 * 1024 * 1024
PROMETHEUS_LINES_HARD = 100_000
PROMETHEUS_LINE_BYTES_HARD = 64 * 1024
PROMETHEUS_SAMPLES_HARD = 100_000
PROMETHEUS_LABELS_HARD = 64
PROMETHEUS_NAME_HARD = 1_024
PROMETHEUS_LABEL_NAME_HARD = 1_024
PROMETHEUS_LABEL_VALUE_HARD = 65_536

# --- runtimes: reading one answer ------------------------------------------------------------------------------------
ANSWER_MAX_TOKEN_COUNT = 1_000_000_000
"""A reported token count above this is no count of one answer: the longest contexts are near 10^7."""
ANSWER_MAX_EVENTS = 65_536
"""Events of one token timeline; as many as the hard maximum of SSE events."""
ANSWER_MAX_CHOICES = 128
"""Choices of one answer, where their number is not known beforehand."""
REQUEST_MAX_MESSAGES = 64
REQUEST_MAX_PROMPT_CHARS = 524_288
"""Characters of a prompt, or of all messages together (original project, section 2.1)."""
REQUEST_MAX_OUTPUT_TOKENS = 1_000_000
REQUEST_MAX_STOPS = 8
REQUEST_MAX_STOP_CHARS = 256
MAX_SECRET_BYTES = 16_384
"""One secret; the header ceiling of the original project."""

# --- passive reads -------------------------------------------------------------------------------------------------

PASSIVE_MAX_BYTES = 1024 * 1024
PASSIVE_DEADLINE_MS = 10_000

# --- probes and metrics --------------------------------------------------------------------------------------------

PROBE_MAX_MODELS = 4_096
"""Entries of one model list."""
PROBE_MAX_FACTS = 64
"""Allowlisted values that are kept of one answer."""
PROBE_MAX_FACT_LENGTH = 512
PROBE_MAX_ROWS = 4_096
"""Iteration records of one JSON metrics answer (original project, section 1.11)."""
CANCEL_POLLS = 20
CANCEL_POLL_S = 0.1
"""After an abort the server has two seconds to stop; SGLang takes about that long."""
RECEIPT_HOURS = 24.0
RECEIPT_HOURS_MAX = 168.0
"""A receipt is evidence for a day, and never for longer than a week."""
SCRAPE_DEADLINE_MS = 5_000
SCRAPE_EVERY_S = 2.0
"""Between two scrapes of one server inside a window."""
