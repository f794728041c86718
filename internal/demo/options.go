package demo

import (
	"embed"
	"io"
	"time"

	"edda/internal/shop"
)

//go:embed manifests/*.yaml
var manifestFiles embed.FS

// Options of a run. The zero value of a field means its default.
type Options struct {
	Edda   string // the edda binary
	Orders int    // 1,000
	Trips  int    // 200; none when negative
	Out    io.Writer
	// Timeout bounds the run, without the stay: one minute.
	Timeout time.Duration
	// Keep leaves the data folder behind and says where it is.
	Keep bool
	// Stay leaves the shop and edda running after the comparison, until the context ends.
	Stay bool
	// Progress draws a bar; off where Out is no terminal.
	Progress bool
}

func (o Options) withDefaults() Options {
	if o.Orders <= 0 {
		o.Orders = 1000
	}
	if o.Trips <= 0 {
		o.Trips = 200
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	return o
}

// rates of the shop, of 1,000: enough of everything to see it in every run.
var rates = shop.Rates{NeverPays: 40, Declines: 50, Slow: 20, Lost: 5}

// outage of the carrier: in the middle of a run, and for longer than retries last.
var outage = shop.Outage{Endpoint: "ship", After: 200, For: 1500 * time.Millisecond}

const (
	// breaker is the carrier's name in effects.yaml.
	breaker = "carrier"
	// watchEvery is how often its state is read.
	watchEvery = 20 * time.Millisecond
	// stall is longer than the effects' timeout in the manifests.
	stall = 700 * time.Millisecond
	// duplicates: one event in this many is published twice.
	duplicates = 20
	// settleFor bounds the lag of the books behind the end of the last saga.
	settleFor = 10 * time.Second
	// startFor bounds how long edda may take to be ready.
	startFor = 20 * time.Second
)
