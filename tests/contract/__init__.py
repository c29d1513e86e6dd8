"""What an API server answers to the calls this project makes: the only definition of right for the embedded one.

`test_apiserver_contract.py` (read it first) runs against `vrampack.simulator.apiserver` always and, marked `e2e`, against
the real one. What only the embedded server can do (be frozen, be cut) is not a contract: see tests/simulator.
"""
