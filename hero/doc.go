// Package hero is the vocabulary of the Hero systems: the objects that actors,
// coordinators, supervisors and runners keep in Redis and send each other, and
// their statuses. It has values only, imports only the standard library and does no
// I/O. The method fields of a type is its Redis hash; its JSON tags are its JSON-RPC.
package hero
