"""The contract line by line: what the product promises, each promise a check that asks the built binary.

A check has an id that stays, the rule in a few words, and a function that sends something, asserts on what comes back and tells
both. Checks stand in a file for each kind of promise: `routes`, `commands`, `flags`, `settings`, `rules`, `errors`, `states`; what has no room there stands in files beside
it whose names begin alike (`rules_form`, `errors_wire`).
`contract` lists what must be checked, `beyond` what is offered besides, and `page` makes the table of docs/conformance.md.
"""
