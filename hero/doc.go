// Package hero has the domain types of the Hero systems: the objects that actors, coordinators,
// supervisors and runners keep in Redis and send each other, and their statuses. It has values
// only, imports only the standard library and does no I/O. The method fields of a type gives
// its Redis hash; its JSON tags give its JSON-RPC form.
package hero
