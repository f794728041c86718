package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"time"

	"edda/internal/backoff"
)

// Rates say how often, of 1,000, the shop behaves badly. Which order meets what
// is drawn from its name, so that a run can be repeated.
type Rates struct {
	NeverPays int // the payment never comes
	Declines  int // stock, shipping, a flight, a car or a hotel is refused
	Slow      int // the first call is not answered in time, though it had its effect
	Lost      int // no call is ever answered, though each had its effect
}

// Outage is a time during which an endpoint answers 503.
type Outage struct {
	Endpoint string        // ship
	After    int           // calls of the endpoint before it begins; 0 means no outage
	For      time.Duration // its duration
}

// Options of a shop.
type Options struct {
	Rates  Rates
	Outage Outage
	// Stall is how long a call that is not answered in time is kept; longer
	// than the effect's timeout.
	Stall time.Duration
	// Pay publishes the payment of an order; the shop calls it when a payment
	// was asked for, and again when it is asked again.
	Pay func(ctx context.Context, order string, amount int) error
}

// maxBody bounds the body of a call.
const maxBody = 1 << 20

// Shop is the running shop.
type Shop struct {
	o        Options
	ledger   *ledger
	outage   outage
	listener net.Listener
	server   *http.Server
}

// Listen listens on a free loopback port.
func Listen(o Options) (*Shop, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	s := &Shop{o: o, ledger: newLedger(), outage: outage{Outage: o.Outage}, listener: l}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects/{name}", s.effect)
	mux.HandleFunc("POST /v1/commands", s.command)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return s, nil
}

// URL returns the address of the shop.
func (s *Shop) URL() string { return "http://" + s.listener.Addr().String() }

// Run serves until ctx ends.
func (s *Shop) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() })
	defer stop()
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the shop: %w", err)
	}
	return nil
}

// draw derives a number below 1,000 from a name.
func draw(parts ...string) int {
	h := fnv.New32a()
	for _, p := range parts {
		_, _ = io.WriteString(h, p+"\x00")
	}
	return int(h.Sum32() % 1000)
}

// effect answers one effect: reserve_stock, ship, refund, book_flight and so on.
func (s *Shop) effect(w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID string `json:"id"` // of the order or trip
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&call); err != nil || call.ID == "" {
		http.Error(w, "want {\"id\": …}", http.StatusBadRequest)
		return
	}
	name, key := r.PathValue("name"), r.Header.Get("Idempotency-Key")
	if key == "" {
		http.Error(w, "want an Idempotency-Key", http.StatusBadRequest)
		return
	}
	if s.outage.refuses(name, time.Now()) {
		reply(w, answer{http.StatusServiceUnavailable, map[string]any{"code": "down"}})
		return
	}
	a, nth := s.ledger.once(name, key, call.ID, func(b *Books) answer { return s.act(b, name, call.ID) })
	if s.stalls(name, call.ID, nth) {
		_ = backoff.Wait(r.Context(), s.o.Stall)
		panic(http.ErrAbortHandler) // the connection closes without an answer
	}
	reply(w, a)
}

// stalls tells whether a call is one that is not answered in time.
func (s *Shop) stalls(name, id string, nth int) bool {
	if _, undo := undoes[name]; undo || name == "refund" {
		return false
	}
	d := draw("stall", name, id)
	return d < s.o.Rates.Lost || d < s.o.Rates.Lost+s.o.Rates.Slow && nth == 1
}

func reply(w http.ResponseWriter, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body)
}

// undoes maps each undo to what it gives back.
var undoes = map[string]string{
	"release_stock": "stock", "cancel_flight": "flight", "cancel_car": "car", "cancel_hotel": "hotel",
}

// reserves maps each step to what it takes.
var reserves = map[string]string{
	"reserve_stock": "stock", "book_flight": "flight", "book_car": "car", "book_hotel": "hotel",
}

// act applies a call, or declines it.
func (s *Shop) act(b *Books, name, id string) answer {
	declined := draw("decline", name, id) < s.o.Rates.Declines
	switch {
	case reserves[name] != "":
		if declined {
			return answer{http.StatusConflict, map[string]any{"code": "sold_out"}}
		}
		b.Reserved[reserves[name]]++
	case undoes[name] != "":
		if b.Reserved[undoes[name]] > b.Released[undoes[name]] {
			b.Released[undoes[name]]++
		}
	case name == "ship":
		if declined {
			return answer{http.StatusConflict, map[string]any{"code": "no_carrier"}}
		}
		b.Shipped++
	case name == "recall":
		b.Returned = b.Shipped
	case name == "refund":
		b.Refunded++
	default:
		return answer{http.StatusNotFound, map[string]any{"code": "unknown"}}
	}
	return answer{http.StatusOK, map[string]any{"id": name + "-" + id}}
}

// command is the shop's gateway: it takes the commands that sagas submit.
func (s *Shop) command(w http.ResponseWriter, r *http.Request) {
	var c struct {
		CommandID   string `json:"command_id"`
		AggregateID string `json:"aggregate_id"`
		Payload     string `json:"payload_json"`
	}
	var payload struct {
		Command string `json:"command"`
		Amount  int    `json:"amount"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := json.Unmarshal([]byte(c.Payload), &payload); err != nil {
		http.Error(w, "payload_json: "+err.Error(), http.StatusBadRequest)
		return
	}
	a, _ := s.ledger.once("command "+payload.Command, c.CommandID, c.AggregateID, func(b *Books) answer {
		s.take(b, payload.Command, c.AggregateID)
		return answer{http.StatusAccepted, map[string]any{"accepted": true}}
	})
	if payload.Command == "Request" && s.pays(c.AggregateID) {
		// on every call, because the event of a payment may be lost
		if err := s.o.Pay(r.Context(), c.AggregateID, payload.Amount); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	reply(w, a)
}

// take applies a command.
func (s *Shop) take(b *Books, command, id string) {
	switch {
	case command != "Request":
		b.Closed = append(b.Closed, command)
	case s.pays(id):
		b.Charged++
	}
}

// pays tells whether the customer of an order pays at all.
func (s *Shop) pays(id string) bool { return draw("pay", id) >= s.o.Rates.NeverPays }
