"""The two kinds of ticket, gate and queue, and all policies, have what solo/contention/protocols.py declares."""

import inspect

import pytest

from solo import gate, tickets
from solo.contention import policies, protocols, sockets

IMPLEMENTATIONS = [
    (protocols.Ticket, tickets.Ticket),
    (protocols.Ticket, sockets.SocketTicket),
    (protocols.Gate, gate.Gate),
    (protocols.Gate, sockets.SocketGate),
    (protocols.Queue, tickets.Queue),
    (protocols.Queue, sockets.SocketQueue),
    *(
        (protocols.Policy, policy)
        for policy in (policies.Policy, policies.MaxWaiting, policies.Latest, policies.Replace)
    ),
]


def list_methods(protocol):
    """Return {name: method}, without those that typing.Protocol and Python add to a class."""
    return {
        name: method
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and method.__module__ == protocols.__name__ and name != "__annotate_func__"
    }


@pytest.mark.parametrize("protocol, implementation", IMPLEMENTATIONS, ids=lambda kind: kind.__qualname__)
def test_implementation_has_the_methods_and_attributes_of_its_protocol(protocol, implementation):
    for name, method in list_methods(protocol).items():
        names = list(inspect.signature(getattr(implementation, name)).parameters)
        assert names == list(inspect.signature(method).parameters), name
    for name in {
        *getattr(protocol, "__annotations__", ()),
        *(name for name, value in vars(protocol).items() if isinstance(value, property)),
    }:
        assert hasattr(implementation, name), name


def test_a_missing_parameter_is_found():
    methods = list_methods(protocols.Queue)

    assert {"publish", "list_files", "leave"} <= set(methods)
    assert list(inspect.signature(methods["publish"]).parameters) != list(
        inspect.signature(tickets.Queue.remove).parameters
    )
