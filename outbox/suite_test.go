package outbox_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"edda"
	"edda/outbox"
	"edda/outbox/outboxtest"
)

func commandWith(content string) edda.Work {
	return edda.Work{
		Kind: edda.WorkCommand, Name: "Payment.Request", To: "P1", Payload: json.RawMessage(`{"content":"` + content + `"}`),
		From: edda.Key{Tenant: "acme", Saga: "order"},
	}
}

// payments is a gateway's other side.
type payments struct {
	mu     sync.Mutex // guards below
	seen   []outboxtest.Arrival
	silent chan struct{} // not nil: nothing is answered until it is closed
}

func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.seen = append(p.seen, outboxtest.Arrival{ID: r.Header.Get("Idempotency-Key"), Text: string(body)})
	silent := p.silent
	p.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

func (p *payments) all() []outboxtest.Arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func (p *payments) silently(f func()) {
	silent := make(chan struct{})
	set := func(c chan struct{}) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.silent = c
	}
	set(silent)
	defer close(silent)
	f()
	set(nil)
}

func TestGatewayIsADestination(t *testing.T) {
	outboxtest.Run(t, func(t *testing.T, test func(*testing.T, outboxtest.Fixture)) {
		p, faults := &payments{}, &road{}
		server := httptest.NewServer(p)
		defer server.Close()
		g, err := outbox.NewGateway(outbox.GatewayOptions{URL: server.URL, Transport: faults})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		test(t, outboxtest.Fixture{
			Destination: g, Work: commandWith, Seen: p.all, Silent: p.silently, Away: faults.away,
			Refused: func() edda.Work {
				w := commandWith("")
				w.Payload = json.RawMessage(`{`)
				return w
			},
		})
	})
}

// road leads to a server, unless it is cut.
type road struct {
	http.Transport
	mu  sync.Mutex // guards below
	cut bool
}

func (r *road) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	cut := r.cut
	r.mu.Unlock()
	if cut {
		return nil, io.ErrUnexpectedEOF
	}
	return r.Transport.RoundTrip(req)
}

func (r *road) away(f func()) {
	set := func(cut bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cut = cut
	}
	set(true)
	f()
	set(false)
}

// TestFakeDestinationIsADestination: the fake is as strict as real destinations.
func TestFakeDestinationIsADestination(t *testing.T) {
	outboxtest.Run(t, func(t *testing.T, test func(*testing.T, outboxtest.Fixture)) {
		synctest.Test(t, func(t *testing.T) {
			fake, d := outbox.NewFake(t, "Payment.Refuse")
			test(t, outboxtest.Fixture{
				Destination: d, Work: commandWith, Silent: fake.Silent,
				Refused: func() edda.Work {
					w := commandWith("")
					w.Name = "Payment.Refuse"
					return w
				},
				Seen: func() (out []outboxtest.Arrival) {
					for _, w := range fake.Got() {
						out = append(out, outboxtest.Arrival{ID: w.ID, Text: string(w.Payload)})
					}
					return out
				},
			})
		})
	})
}
