// Package shop is the other side of the demo: a small shop with stock, payment
// and shipping, which answers, declines and times out at given rates, and keeps
// books of everything that happened to it.
//
// It is what an Edda user's own services would be: it knows nothing of sagas.
// It honours idempotency keys, so a call that is made again has its effect once,
// and it says in its books how often each call came.
package shop
