package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"edda/internal/harness"
	"edda/internal/shop"
)

// run is one run of the demo.
type run struct {
	Options
	dir    string // manifests, data and log
	shop   *shop.Shop
	edda   *harness.Edda
	client *harness.Client
	ends   *harness.Ends
	took   time.Duration // from the first event to the last end
	watch  *watch        // watches the carrier's breaker
	stops  harness.Stops
}

// Run runs the demo. The error says where books and sagas disagree. The end of ctx ends a stay.
func Run(ctx context.Context, o Options) (err error) {
	r := &run{Options: o.withDefaults()}
	defer func() { err = errors.Join(err, r.stops.Stop()) }()
	if err := r.all(ctx); err != nil || !r.Stay {
		return err
	}
	return r.stay(ctx)
}

// all runs and verifies everything within the timeout.
func (r *run) all(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.drive(ctx); err != nil {
		return err
	}
	return errors.Join(r.verify(ctx), r.watch.verify(r))
}

// open starts the shop, edda and the client.
func (r *run) open(ctx context.Context) (err error) {
	if err := r.openShop(); err != nil {
		return err
	}
	r.say("shop      %s  (stock, payment, shipping; declines, loses and delays on purpose)", r.shop.URL())
	if r.dir, err = os.MkdirTemp("", "edda-demo-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	r.stops.Add(r.cleanUp)
	manifests := filepath.Join(r.dir, "manifests")
	if err := writeManifests(manifests, r.shop.URL()); err != nil {
		return err
	}
	if r.edda, err = harness.NewEdda(r.Edda, r.dir, manifests, "--gateway", r.shop.URL()); err != nil {
		return err
	}
	if err := r.edda.StartReady(ctx, startFor); err != nil {
		return err
	}
	r.stops.Add(r.edda.Stop)
	r.say("edda dev  %s  NATS %s", r.edda.API, r.edda.NATS)
	if r.client, err = harness.Connect(r.edda.NATS); err != nil {
		return err
	}
	r.stops.Add(r.client.Close)
	r.ends = r.client.Listen(0)
	r.ends.Repeats = true
	return nil
}

// writeManifests writes the manifests with the shop's address in them.
func writeManifests(dir, shopURL string) error {
	return harness.WriteFiles(dir, manifestFiles, "manifests/*.yaml", "SHOP/", shopURL+"/")
}

func (r *run) openShop() (err error) {
	r.shop, err = shop.Listen(shop.Options{Rates: rates, Outage: r.outage(), Stall: stall, Pay: r.pay})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.shop.Run(ctx) }()
	r.stops.Add(func() error { cancel(); return <-ended })
	return nil
}

func (r *run) cleanUp() error {
	if r.Keep {
		r.say("data, manifests and log are in %s", r.dir)
		return nil
	}
	return os.RemoveAll(r.dir)
}

// publish publishes an event.
func (r *run) publish(aggregate, id, event string, payload map[string]any) error {
	body, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	return r.client.Publish(aggregate, id, event, body)
}

// begin publishes the event that starts a saga. It publishes some twice, because a real
// publisher is at-least-once.
func (r *run) begin(ctx context.Context, i int, aggregate, id, event string, payload map[string]any) error {
	if err := r.ends.Begin(ctx, id, time.Now()); err != nil {
		return err
	}
	if i%duplicates == 0 {
		if err := r.publish(aggregate, id, event, payload); err != nil {
			return err
		}
	}
	return r.publish(aggregate, id, event, payload)
}

// order begins an order.
func (r *run) order(ctx context.Context, i int) error {
	items := []map[string]any{{"sku": "sku-" + strconv.Itoa(i%7), "qty": 1 + i%3, "price": 5 + i%40}}
	return r.begin(ctx, i, "Order", orderID(i), "OrderPlaced", map[string]any{"order_id": orderID(i), "items": items})
}

// pay publishes the payment of an order for the shop.
func (r *run) pay(ctx context.Context, order string, amount int) error {
	if err := r.publish("Payment", order, "PaymentReceived", map[string]any{"order_id": order, "amount": amount}); err != nil {
		return err
	}
	return r.client.Stored(ctx)
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

func orderID(i int) string { return "O" + strconv.Itoa(i) }
func tripID(i int) string  { return "T" + strconv.Itoa(i) }

// drive sends every order and trip and waits until all sagas have ended.
func (r *run) drive(ctx context.Context) error {
	r.say("sending   %d orders and %d trips through NATS, every %dth twice\n", r.Orders, r.Trips, duplicates)
	began := time.Now()
	r.watch = watchBreaker(ctx, r.edda.API, began)
	defer r.watch.end()
	for i := range r.Orders {
		if err := r.order(ctx, i); err != nil {
			return err
		}
	}
	for i := range r.Trips {
		if err := r.begin(ctx, i, "Trip", tripID(i), "TripRequested", map[string]any{"trip_id": tripID(i)}); err != nil {
			return err
		}
	}
	if err := r.client.Stored(ctx); err != nil {
		return err
	}
	bar := newBar(r.Out, r.Progress, r.Orders+r.Trips)
	defer bar.end()
	if err := r.ends.Await(ctx, r.Orders+r.Trips, bar.set); err != nil {
		return fmt.Errorf("not all sagas ended: %w; the end of edda's log:\n%s", err, r.edda.Tail())
	}
	r.took = time.Since(began)
	return nil
}
