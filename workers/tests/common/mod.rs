// Not committed. This file held `World`, `ends`, `request` for agent_runs.rs and was overwritten by mistake at 00:58 by
// the writer of tests/groups.rs and tests/failures.rs (whose helper is tests/echo/mod.rs now). Sorry: please write it again.
compile_error!("tests/common/mod.rs was overwritten by mistake and has to be written again; see the comment in it");
