package effects

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"edda/expression"
	"edda/manifests"
)

// The bounds of a manifest's limit.
const (
	maxRate       = 1e5                  // calls a second: more than a process makes
	minRate       = 1.0 / (25 * 60 * 60) // one a day with rounding: commands hardly live longer
	maxBurst      = 1e5                  // one second of maxRate
	maxConcurrent = 10_000
	// maxKey bounds the name of a key, because many are kept. A longer one is hashed.
	maxKey = 128
)

// limit is the checked limit of a manifest. It applies to each key.
type limit struct {
	key        *value     // nil: the tenant
	source     string     // of key, to compare it after a reload
	rate       rate.Limit // calls a second; 0: no bound
	burst      int
	concurrent int // 0: no bound
}

// limit compiles a manifest's limit; nil if there is none.
func (c *compiler) limit(v *manifests.Value) *limit {
	if v == nil {
		return nil
	}
	l := &limit{}
	c.fields(v, "limit", map[string]func(*manifests.Value){
		"key":        func(f *manifests.Value) { l.key, l.source = c.limitKey(f) },
		"rate":       func(f *manifests.Value) { l.rate = c.rate(f) },
		"burst":      func(f *manifests.Value) { l.burst = c.whole(f, "limit.burst", maxBurst) },
		"concurrent": func(f *manifests.Value) { l.concurrent = c.whole(f, "limit.concurrent", maxConcurrent) },
	})
	switch {
	case v.Field("rate") == nil && v.Field("concurrent") == nil:
		c.errorf(v.Pos, "limit bounds nothing: give it rate (50/s), concurrent (10) or both")
	case v.Field("rate") == nil && v.Field("burst") != nil:
		c.errorf(v.Field("burst").Pos, "limit.burst is how far a rate may be exceeded for a moment: give limit a rate, or leave burst out")
	}
	if l.burst == 0 {
		l.burst = max(1, int(math.Ceil(float64(l.rate))))
	}
	return l
}

// limitKey compiles the key: one value of what is known before the call. A secret is no key,
// because keys stay in memory.
func (c *compiler) limitKey(v *manifests.Value) (*value, string) {
	if v.Kind == manifests.List || v.Kind == manifests.Map || v.Scalar == nil && v.Kind == manifests.Literal {
		c.errorf(v.Pos, "limit.key is one value, such as =tenant or =payload.merchant; without it the key is the tenant")
		return nil, ""
	}
	return c.value(v, []string{"payload", "id", "tenant"}), keySource(v)
}

// keySource returns a text that is equal for equal keys only.
func keySource(v *manifests.Value) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %T %v", v.Kind, v.Scalar, v.Scalar)
	for _, p := range v.Parts {
		fmt.Fprintf(&b, " %q", p.Text)
	}
	v.Exprs(func(e *manifests.Expr) { fmt.Fprintf(&b, " =%q", e.Source) })
	return b.String()
}

// rate reads 50/s, 100/m, 3/h, or a number of calls a second.
func (c *compiler) rate(v *manifests.Value) rate.Limit {
	got := 0.0
	switch s := v.Scalar.(type) {
	case int:
		got = float64(s)
	case float64:
		got = s
	case string:
		got = rateOf(s)
	}
	if got < minRate || got > maxRate {
		c.errorf(v.Pos, "limit.rate is calls in a time, such as 50/s, 100/m or 3/h, or a number a second: from one a day to 100000/s, never an expression")
		return 0
	}
	return rate.Limit(got)
}

// rateOf parses a rate; 0 if it is invalid.
func rateOf(text string) float64 {
	calls, unit, _ := strings.Cut(text, "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(calls, 64)
	if err != nil || seconds == 0 || strings.Trim(calls, "0123456789.") != "" {
		return 0
	}
	return n / seconds
}

// fields reads the known fields of a map, and reports others.
func (c *compiler) fields(v *manifests.Value, what string, known map[string]func(*manifests.Value)) {
	if v.Kind != manifests.Map {
		c.errorf(v.Pos, what+" is a map")
		return
	}
	for _, f := range v.Fields {
		if read := known[f.Name]; read != nil {
			read(f.Value)
			continue
		}
		c.errorf(f.Pos, fmt.Sprintf("%s has no %s: it knows %s", what, f.Name, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
	}
}

// whole reads a whole number from 1 up; 1 after a reported problem.
func (c *compiler) whole(v *manifests.Value, what string, most int) int {
	n, ok := v.Scalar.(int)
	if v.Kind != manifests.Literal || !ok || n < 1 || n > most {
		c.errorf(v.Pos, fmt.Sprintf("%s is a whole number from 1 to %d, never an expression", what, most))
		return 1
	}
	return n
}

// span reads a duration above zero.
func (c *compiler) span(v *manifests.Value, what string, most time.Duration) time.Duration {
	text, _ := v.Scalar.(string)
	d, err := manifests.ParseDuration(text)
	if v.Kind != manifests.Literal || err != nil || d <= 0 || d > most {
		c.errorf(v.Pos, fmt.Sprintf("%s is a duration such as 30s, more than nothing and at most %s, never an expression", what, most))
		return most
	}
	return d
}

// keyOf returns the key whose share of the limit a command uses. Values with the same text are one
// key.
func (l *limit) keyOf(tenant string, vars map[string]any) (string, error) {
	if l == nil || l.key == nil {
		return tenant, nil
	}
	v, err := l.key.eval(vars)
	if err != nil {
		return "", err
	}
	key := expression.Text(v)
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(key))
		key = hex.EncodeToString(sum[:])
	}
	return key, nil
}

// bucket makes the full token bucket of a key; nil without a rate.
func (l *limit) bucket() *rate.Limiter {
	if l == nil || l.rate == 0 {
		return nil
	}
	return rate.NewLimiter(l.rate, l.burst)
}

// refit adapts a key's bucket to a changed limit. Spent tokens stay spent, unless the keys have
// changed.
func (l *limit) refit(was *limit, b *rate.Limiter, now time.Time) *rate.Limiter {
	if b == nil || l == nil || l.rate == 0 || l.source != was.source {
		return l.bucket()
	}
	b.SetLimitAt(now, l.rate)
	b.SetBurstAt(now, l.burst)
	return b
}

// ready returns when a bucket holds n tokens.
func ready(b *rate.Limiter, n float64, now time.Time) time.Time {
	if b == nil {
		return now
	}
	missing := max(0, n-b.TokensAt(now))
	return now.Add(time.Duration(min(missing/float64(b.Limit())*float64(time.Second), float64(maxAhead))))
}

// maxAhead bounds the wait for tokens, because a time.Duration cannot be longer. Every bucket is
// full by then.
const maxAhead = 200 * 365 * 24 * time.Hour
