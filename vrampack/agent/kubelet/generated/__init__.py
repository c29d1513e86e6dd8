"""Generated from kubelet's .proto files by `python -m tests.agent.generated_stubs`; not edited by hand."""
