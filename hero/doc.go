// Package hero is the vocabulary of the Hero systems: the objects that actors,
// coordinators, supervisors and runners keep in Redis and send each other, and
// the words of their states. Values only, standard library only: nothing here
// does I/O. How an object lies in a Redis hash is in its own file, beside
// its type; its JSON tags are how it stands in JSON-RPC.
package hero
