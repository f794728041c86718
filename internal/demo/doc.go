// Package demo runs Edda as a new user would. It starts `edda dev` with two sagas, opens
// a small shop and sends a thousand orders with a NATS client. Then it compares the
// shop's books with the instances of the sagas.
//
// The demo of a cluster does the same with three nodes over three NATS servers. It kills
// the owner of the store with -9 while orders flow, and has the next owner hand over. At the
// end it compares the rows of the three stores.
//
// Both use only Edda's command line, NATS and HTTP, but for that last comparison.
package demo
