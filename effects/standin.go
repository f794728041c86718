package effects

import (
	"context"
	"time"

	"edda/manifests"
)

// Stand-ins with the signatures of admission, breaker and limit, until those land: then delete
// this file whole, and adapt worker.go where a signature differs.
type health int

const (
	neutral health = iota
	healthy
	ill
)

type limit struct{ key *value }
type breakerSpec struct{ name string }
type breaker struct{}
type breakers struct{}

func newBreakers(func(string, int)) *breakers               { return &breakers{} }
func (b *breakers) get(breakerSpec) *breaker                { return nil }
func CheckBreakers([]*Effect) manifests.Problems            { return nil }
func (c *compiler) breaker(v *manifests.Value) *breakerSpec { return nil }
func (c *compiler) limit(v *manifests.Value) *limit         { return nil }

type admissionOptions struct {
	slots   int
	limit   *limit
	breaker *breaker
	observe func(string, time.Duration)
}
type applicant struct {
	key         string
	high, begun bool
}
type laterError struct{ after time.Duration }

func (*laterError) Error() string { return "later" }

type admission struct{ slots chan struct{} }
type turn struct{ a *admission }

func newAdmission(o admissionOptions) *admission {
	return &admission{make(chan struct{}, o.slots)}
}
func (a *admission) configure(*limit, *breaker) {}
func (a *admission) turn(ctx context.Context, r applicant) (*turn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case a.slots <- struct{}{}:
		return &turn{a}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
func (t *turn) end(health)         { <-t.a.slots }
func (a *admission) shed(int)      {}
func (a *admission) limited() bool { return false }
