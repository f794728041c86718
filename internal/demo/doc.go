// Package demo runs Edda as a new user would. It starts `edda dev` with two sagas, opens
// a small shop and sends a thousand orders with a NATS client. Then it compares the
// shop's books with the instances of the sagas.
//
// It uses only Edda's command line, NATS and HTTP.
package demo
