//! What people get wrong in the file, and the exact sentence they get.

/// The file, and what is said of it.
pub(crate) const MISTAKES: &[(&str, &str)] = &[
    (
        "[tasks]\ngrace_window = '3 parsecs'",
        r#"config.toml: tasks.grace_window: "3 parsecs" is not a duration; write "2s", "150ms" or "1h""#,
    ),
    (
        "[tasks]\ngrace_window = 2",
        r#"config.toml: tasks.grace_window: "2" is not a duration; write "2s", "150ms" or "1h""#,
    ),
    (
        "[tasks]\ngrace_windw = '2s'",
        "config.toml: tasks.grace_windw: unknown key; did you mean grace_window? accepted in \
             [tasks]: mode, grace_window, fallback_after, \
             require_tasks, input, retention, max_duration, poll_interval, poll_hold, input_reminder, \
             input_timeout, on_input_timeout, result_bytes_max, result_inline, max_result_size_chars, \
             on_owner_lost, concurrency, queue, heartbeat, attach, attach_window, give_up_window, scopes, \
             companion_tools, companion_prefix, rules_file, rules",
    ),
    (
        "[[tools]]\nname = 'a'\nmax_result_size_chars = 0",
        "config.toml: [[tools]] #1: max_result_size_chars: must be from 1 to 500000: Claude Code takes no more",
    ),
    (
        "[tasks]\nmax_result_size_chars = 500001",
        "config.toml: tasks.max_result_size_chars: must be from 1 to 500000: Claude Code takes no more",
    ),
    (
        "[task]\nmode = 'auto'",
        "config.toml: task: unknown key; did you mean tasks? accepted at the top level: listen, \
             upstream, store, tasks, tools, jobs, notify, events, history, replica, drain, admin, auth, limits, telemetry",
    ),
    (
        "[history]\nentries_max = 0",
        "config.toml: history.entries_max: is not between 1 and 2000000",
    ),
    (
        "[history]\nkeep = '400d'",
        r#"config.toml: history.keep: "400d" is too long; the longest is "365d""#,
    ),
    (
        "[listen.tls]\ncert = 'x'",
        "config.toml: listen.tls.cert: unknown key; accepted in [listen.tls]: certificate, key",
    ),
    (
        "[[tools]]\nname = 'a'\n[[tools]]\nname = 'b'\nmod = 'auto'",
        "config.toml: [[tools]] #2: mod: unknown key; did you mean mode? accepted in [[tools]]: \
             name, mode, grace_window, fallback_after, require_tasks, input, retention, \
             max_duration, poll_interval, poll_hold, input_reminder, input_timeout, \
             on_input_timeout, result_bytes_max, result_inline, \
             max_result_size_chars, on_owner_lost, concurrency, queue, heartbeat, attach, attach_window, give_up_window, scopes",
    ),
    (
        "[[tools]]\nname = 'a'\nmode = 'sometimes'",
        r#"config.toml: [[tools]] #1: mode: "sometimes" is not one of "auto", "always", "never""#,
    ),
    (
        "[[tools]]\nmode = 'auto'",
        "config.toml: [[tools]] #1: name: not set; name the tools, with globs if you like: \
             name = [\"build_*\", \"deploy\"]",
    ),
    (
        "[[tools]]\nname = 'a[b'",
        "config.toml: [[tools]] #1: name: \"a[b\" is not a glob: unclosed character class; \
             missing ']'",
    ),
    (
        "tasks = 5",
        "config.toml: tasks: must be a table, not a number",
    ),
    (
        "[tools]\nname = 'a'",
        "config.toml: tools: must be a list of tables, not a table",
    ),
    (
        "[tasks]\nmode = ['auto']",
        "config.toml: tasks.mode: must be \"auto\", \"always\" or \"never\", not a list",
    ),
    (
        "[tasks]\nconcurrency = 0",
        "config.toml: tasks.concurrency: must be from 1 to 1000000; leave it out for no limit",
    ),
    (
        "[upstream]\nconcurrency = 1000001",
        "config.toml: upstream.concurrency: must be from 1 to 1000000; leave it out for no limit",
    ),
    (
        "[[tools]]\nname = 'a'\nconcurrency = 1\nqueue = 10001",
        "config.toml: [[tools]] #1: queue: must be from 0 to 10000; the default is 256",
    ),
    (
        "[upstream]\nqueue = 1",
        "config.toml: upstream.queue: has no effect without concurrency; set that, too, \
             or take it out",
    ),
    (
        "[tasks]\nqueue = 1",
        "config.toml: tasks.queue: has no effect without concurrency; set that, too, or \
             take it out",
    ),
    (
        "[[tools]]\nname = 'a'\nqueue = 1",
        "config.toml: [[tools]] #1: queue: has no effect without concurrency; set that, \
             too, or take it out",
    ),
    (
        "[listen]\nh2c = 'yes'",
        "config.toml: listen.h2c: \"yes\" is neither true nor false",
    ),
    (
        "[listen]\nallowed_hosts = [1]",
        "config.toml: listen.allowed_hosts: must be a text, not a number",
    ),
    (
        "[limits]\ncalls = 'many'",
        "config.toml: limits.calls: \"many\" is not a whole number",
    ),
    (
        "[limits]\ncalls = -1",
        "config.toml: limits.calls: \"-1\" is not a whole number",
    ),
    (
        "[limits]\nbody_bytes_max = '8MB'",
        r#"config.toml: limits.body_bytes_max: "8MB" is not a size; write "8MiB", "512KiB" or a number of bytes"#,
    ),
    (
        "[limits]\ncalls = 0",
        "config.toml: limits.calls: must be more than 0: nothing could be served",
    ),
    (
        "[limits]\nbuffer_bytes_max = '7MiB'",
        "config.toml: limits.buffer_bytes_max: must be at least twice limits.body_bytes_max: the largest \
         request would never have room",
    ),
    (
        "[listen]\naddress = ':8440'",
        r#"config.toml: listen.address: ":8440" is not an address with a port; write "127.0.0.1:8440""#,
    ),
    (
        "[listen]\nallowed_hosts = ['tools.example.com:8440']",
        "config.toml: listen.allowed_hosts: \"tools.example.com:8440\" is not a host name; write \
             \"tools.example.com\", without a port",
    ),
    (
        "[listen]\nallowed_hosts = [' tools ']",
        "config.toml: listen.allowed_hosts: \" tools \" is not a host name; write \
             \"tools.example.com\", without a port",
    ),
    (
        "[listen]\npath = '/a/../mcp'",
        r#"config.toml: listen.path: "/a/../mcp" is not a plain path; write "/mcp""#,
    ),
    (
        "[[tools]]\nname = ['a', ' b']",
        r#"config.toml: [[tools]] #1: name: " b" names no tool: it is empty, or has a space around it"#,
    ),
    (
        "[[tools]]\nname = ''",
        r#"config.toml: [[tools]] #1: name: "" names no tool: it is empty, or has a space around it"#,
    ),
    (
        "[telemetry]\nlog = 'hyper=debug'",
        r#"config.toml: telemetry.log: "hyper=debug" would log nothing of raincheck itself; write "info,hyper=debug""#,
    ),
    (
        "[telemetry.traces]\nendpoint = 'http://127.0.0.1:99999/v1/traces'",
        r#"config.toml: telemetry.traces.endpoint: is not where a collector is; write "http://127.0.0.1:4318/v1/traces""#,
    ),
    (
        "[telemetry.traces]\nprotocol = 'http'",
        r#"config.toml: telemetry.traces.protocol: "http" is not one of "http/protobuf", "grpc""#,
    ),
    (
        "[listen]\npublic_url = 'https://tools.example.com:99999/mcp'",
        "config.toml: listen.public_url: \"https://tools.example.com:99999/mcp\" is not a plain address; \
             write \"https://tools.example.com/mcp\"",
    ),
    (
        "[listen]\npath = 'mcp'",
        r#"config.toml: listen.path: "mcp" is not a plain path; write "/mcp""#,
    ),
    (
        "[listen.tls]\ncertificate = 'c.pem'",
        "config.toml: listen.tls.key: not set, but listen.tls.certificate is; TLS needs both, \
             PEM files",
    ),
    (
        "[tasks]\npoll_interval = '0s'",
        "config.toml: tasks.poll_interval: clients would poll without a pause; the shortest is \
             \"10ms\"",
    ),
    (
        "[tasks]\npoll_hold = '1m'",
        "config.toml: tasks.poll_hold: clients and the proxies before them give up after 60s; the \
             longest is \"50s\"",
    ),
    (
        "[tasks]\nfallback_after = '0s'",
        "config.toml: tasks.fallback_after: every call would be answered with a ticket; the default \
             is \"auto\"",
    ),
    (
        "[[tools]]\nname = 'a'\nfallback_after = '2h'",
        "config.toml: [[tools]] #1: fallback_after: is longer than max_duration: every call would \
             fail before its client gets a ticket",
    ),
    (
        "[tasks]\ncompanion_prefix = 'my tools/'",
        "config.toml: tasks.companion_prefix: \"my tools/\" cannot begin the name of a tool; use 1 \
             to 24 of A-Z a-z 0-9 _ -",
    ),
    (
        "[tasks]\ngrace_window = '2h'",
        "config.toml: tasks.grace_window: is longer than max_duration: every call would fail \
             before it became a task",
    ),
    (
        "[tasks]\nmax_duration = '366d'",
        r#"config.toml: tasks.max_duration: "366d" is too long; the longest is "365d""#,
    ),
    (
        "[tasks]\nmode = 'never'\nrequire_tasks = true",
        "config.toml: tasks.require_tasks: mode = \"never\" makes no tasks, so requiring them \
             only shuts clients out; drop one of the two",
    ),
    (
        "[replica]\nlease = '1s'",
        "config.toml: replica.lease: is renewed once a second; the shortest that survives a \
             hiccup is \"3s\"",
    ),
    (
        "[admin]\nprobes = '8441'",
        r#"config.toml: admin.probes: "8441" is not an address with a port; write "0.0.0.0:8441""#,
    ),
    (
        "[admin]\nprobes = '0.0.0.0:8440'",
        "config.toml: admin.probes: has the port of listen.address; write another one, such as \
             \"0.0.0.0:8441\"",
    ),
    (
        "[admin]\nprobes = '0.0.0.0:8441'\nlisten = '127.0.0.1:8441'",
        "config.toml: admin.listen: has the port of admin.probes; write another one, such as \
             \"127.0.0.1:8442\"",
    ),
    (
        "[admin]\nlisten = '8442'",
        r#"config.toml: admin.listen: "8442" is not an address with a port; write "127.0.0.1:8442""#,
    ),
    (
        "[admin]\nlisten = '0.0.0.0:8442'",
        "config.toml: admin.listen: is not a loopback address, so that other machines could read what is \
             for operators; set admin.token or [[admin.operators]], too, or write \"127.0.0.1:8442\"",
    ),
    (
        "[admin]\nlisten = '0.0.0.0:8442'\ntoken = 'short'",
        "config.toml: admin.token: cannot be part of a path or is easily guessed; write 16 to 256 \
             letters, digits, \"-\", \"_\", \".\" and \"~\"",
    ),
    (
        "[[admin.operators]]\ntoken = '0f2c9a4e7b6d1835'",
        "config.toml: [[admin.operators]] #1: name: not set; write who it is, such as \"ada\"",
    ),
    (
        "[[admin.operators]]\nname = \"ada\\u001b\"\ntoken = '0f2c9a4e7b6d1835'",
        "config.toml: [[admin.operators]] #1: name: is not one line of at most 64 characters that can be seen, with \
             single spaces",
    ),
    (
        "[[admin.operators]]\nname = '0123456789012345678901234567890123456789012345678901234567890123x'\n\
         token = '0f2c9a4e7b6d1835'",
        "config.toml: [[admin.operators]] #1: name: is not one line of at most 64 characters that can be seen, with \
             single spaces",
    ),
    (
        "[[admin.operators]]\nname = 'ada'",
        "config.toml: [[admin.operators]] #1: token: not set; write a random text, such as `openssl rand -hex 16` \
             makes, or set token_file",
    ),
    (
        "[[admin.operators]]\nname = 'ada'\ntoken = ''",
        "config.toml: [[admin.operators]] #1: token: cannot be part of a path or is easily guessed; write 16 to 256 \
             letters, digits, \"-\", \"_\", \".\" and \"~\"",
    ),
    (
        "[[admin.operators]]\nname = 'ada'\ntoken = 'a-long-random-text-of-ada'",
        "config.toml: [[admin.operators]] #1: token: is one of our examples, which everybody knows; write your own, \
             such as `openssl rand -hex 16` makes",
    ),
    (
        "[[admin.operators]]\nname = 'ada'\ntoken = '0f2c9a4e7b6d1835'\ntoken_file = '/run/secrets/ada'",
        "config.toml: [[admin.operators]] #1: token_file: and admin.operators.0.token are both set; take one of them out",
    ),
    (
        "[[admin.operators]]\nname = 'ada'\ntoken = '0f2c9a4e7b6d1835'\nrole = 'write'",
        "config.toml: [[admin.operators]] #1: role: \"write\" is not one of \"read\", \"act\"",
    ),
    (
        "[[admin.operators]]\nname = 'ada'\ntoken = '0f2c9a4e7b6d1835'\nrights = 'read'",
        "config.toml: [[admin.operators]] #1: rights: unknown key; accepted in [[admin.operators]]: name, token, \
             token_file, role",
    ),
    (
        "[[admin.operators]]\nname = 'ada'\ntoken = '0f2c9a4e7b6d1835'\n\
         [[admin.operators]]\nname = 'ada'\ntoken = '5381d6b7e4a9c2f0'",
        "config.toml: [[admin.operators]] #2: name: is the name of another [[admin.operators]]; write each operator once",
    ),
    (
        "[[admin.operators]]\nname = 'ada'\ntoken = '0f2c9a4e7b6d1835'\n\
         [[admin.operators]]\nname = 'bob'\ntoken = '0f2c9a4e7b6d1835'",
        "config.toml: [[admin.operators]] #2: token: is the token of another operator, or admin.token; write one that nobody \
             else has",
    ),
    (
        "[admin]\ntoken = '0f2c9a4e7b6d1835'\n[[admin.operators]]\nname = 'ada'\ntoken = '0f2c9a4e7b6d1835'",
        "config.toml: [[admin.operators]] #1: token: is the token of another operator, or admin.token; write one that nobody \
             else has",
    ),
    (
        "[drain]\ntoken = 'correct-horse-battery'",
        "config.toml: drain.token: set, but there is no probe listener; set admin.probes, too",
    ),
    (
        "[drain]\ntoken = 'short'\n[admin]\nprobes = '0.0.0.0:8441'",
        "config.toml: drain.token: cannot be part of a path or is easily guessed; write 16 to 256 \
             letters, digits, \"-\", \"_\", \".\" and \"~\"",
    ),
    (
        "[drain]\ntoken = 'change-me-0123456789abcdef'\n[admin]\nprobes = '0.0.0.0:8441'",
        "config.toml: drain.token: is one of our examples, which everybody knows; write your own, \
             such as `openssl rand -hex 16` makes",
    ),
    (
        "[drain]\ntoken = 'a-long-random-text'\n[admin]\nprobes = '0.0.0.0:8441'",
        "config.toml: drain.token: is one of our examples, which everybody knows; write your own, \
             such as `openssl rand -hex 16` makes",
    ),
    (
        "[store]\nseal_key = '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'",
        "config.toml: store.seal_key: is one of our examples, which everybody knows; write your \
             own, as `openssl rand -hex 32` makes it",
    ),
    (
        "[upstream]\nsessions_max = 2305843009213693952",
        "config.toml: upstream.sessions_max: must be from 1 to 1000000; the default is 256",
    ),
    (
        "[upstream]\nchildren_max = 4",
        "config.toml: upstream.children_max: is for a server that raincheck runs, and this one has \
             a URL; take it out",
    ),
    (
        "[tasks]\nattach_window = '5m'",
        "config.toml: tasks.attach_window: has no effect unless attach is true; set that, \
             too, or take it out",
    ),
    (
        "[tasks]\nattach = true\n[[tools]]\nname = 'a'\nattach = false\nattach_window = '5m'",
        "config.toml: [[tools]] #1: attach_window: has no effect unless attach is true; \
             set that, too, or take it out",
    ),
    (
        "[store]\nurl = 'redb:~/tasks.redb'",
        r#"config.toml: store.url: no shell makes a folder of "~" there; write the whole path"#,
    ),
    (
        "[telemetry]\nlog = 'info,=,'",
        r#"config.toml: telemetry.log: "info,=," is not a log filter; write "error", "warn", "info", "debug", "trace", "off" or "info,raincheck=debug""#,
    ),
];
