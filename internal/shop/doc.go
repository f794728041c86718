// Package shop simulates the services of the demo: a small shop with stock, payment and
// shipping. It answers, declines and times out at given rates, and keeps books of
// everything that happened.
//
// It stands for a user's own services and knows nothing of sagas. It honours idempotency
// keys, so that a repeated call has its effect once. Its books count the calls.
package shop
