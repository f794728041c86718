package effecttest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// Faults is a network between a provider and its server that breaks on demand.
// Each fault replaces the one before it. It holds for what passes from then on,
// also on connections that are already there; but those end where new ones are reset.
type Faults struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// NewFaults passes everything on to a server at host:port until the test ends.
func NewFaults(t testing.TB, server string) *Faults {
	t.Helper()
	quiet := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	f := &Faults{t, toxiproxy.NewProxy(quiet, "faults", "127.0.0.1:0", server)}
	if err := f.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.proxy.Stop)
	return f
}

// Address is the host:port to call instead of the server's.
func (f *Faults) Address() string { return f.proxy.Listen }

// None lets everything pass again.
func (f *Faults) None() { f.proxy.Toxics.ResetToxics(f.t.Context()) }

// SlowAnswers holds each answer back for so long.
func (f *Faults) SlowAnswers(by time.Duration) {
	f.only("downstream", "latency", &toxics.LatencyToxic{Latency: by.Milliseconds()})
}

// NoRequests keeps what is sent to itself and leaves the connection open: the
// server never hears of the call.
func (f *Faults) NoRequests() { f.only("upstream", "timeout", &toxics.TimeoutToxic{}) }

// NoAnswers lets the server hear everything, keeps what it says to itself and
// leaves the connection open.
func (f *Faults) NoAnswers() { f.only("downstream", "timeout", &toxics.TimeoutToxic{}) }

// ResetRequests resets the connection where something is sent: the server
// never hears of the call.
func (f *Faults) ResetRequests() { f.only("upstream", "reset_peer", &toxics.ResetToxic{}) }

// ResetAnswers lets the server hear everything and resets the connection where it answers.
func (f *Faults) ResetAnswers() { f.only("downstream", "reset_peer", &toxics.ResetToxic{}) }

// CutAnswers ends each connection after so many bytes from the server.
func (f *Faults) CutAnswers(after int64) {
	f.only("downstream", "limit_data", &toxics.LimitDataToxic{Bytes: after})
}

// Down ends all connections and takes no new ones until Up.
func (f *Faults) Down() { f.proxy.Stop() }

// Up takes connections again after Down, at the same address.
func (f *Faults) Up() {
	f.t.Helper()
	if err := f.proxy.Start(); err != nil {
		f.t.Fatal(err)
	}
}

// only makes a fault the one there is; its library takes them as JSON.
func (f *Faults) only(direction, kind string, fault toxics.Toxic) {
	f.t.Helper()
	f.None()
	description, err := json.Marshal(map[string]any{"name": kind, "type": kind, "stream": direction, "attributes": fault})
	if err == nil {
		_, err = f.proxy.Toxics.AddToxicJson(bytes.NewReader(description))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
