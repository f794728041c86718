// Package demo runs Edda as a newcomer would: it starts `edda dev` with two
// sagas, opens a small shop, sends a thousand orders with a NATS client of its
// own, and then holds the shop's books against what the sagas say they did.
//
// It uses nothing of Edda but the command line, NATS and HTTP.
package demo
