package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"edda/internal/shop"
)

// run is one run of the demo.
type run struct {
	Options
	shop   *shop.Shop
	edda   *process
	client *client
	took   time.Duration // from the first event to the last end
	watch  *watch        // watches the carrier's breaker
}

// Run runs the demo. The error says where books and sagas disagree.
func Run(ctx context.Context, o Options) (err error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	r := &run{Options: o}
	stop, err := r.open(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	if err := r.drive(ctx); err != nil {
		return err
	}
	return errors.Join(r.verify(ctx), r.watch.verify(r))
}

// open starts the shop, edda and the client. stop ends them.
func (r *run) open(ctx context.Context) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for i := len(stops) - 1; i >= 0; i-- {
			errs = append(errs, stops[i]())
		}
		return errors.Join(errs...)
	}
	if err := r.openShop(&stops); err != nil {
		return stop, err
	}
	r.say("shop      %s  (stock, payment, shipping; declines, loses and delays on purpose)", r.shop.URL())
	if r.edda, err = startEdda(r.Options, r.shop.URL()); err != nil {
		return stop, err
	}
	stops = append(stops, r.cleanUp, r.edda.Stop)
	if err := r.edda.ready(ctx); err != nil {
		return stop, err
	}
	r.say("edda dev  %s  NATS %s", r.edda.api, r.edda.nats)
	if r.client, err = connect(r.edda.nats); err != nil {
		return stop, err
	}
	stops = append(stops, func() error { r.client.nc.Close(); return nil })
	return stop, r.client.listen()
}

func (r *run) openShop(stops *[]func() error) (err error) {
	r.shop, err = shop.Listen(shop.Options{Rates: rates, Outage: r.outage(), Stall: stall, Pay: r.pay})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.shop.Run(ctx) }()
	*stops = append(*stops, func() error { cancel(); return <-ended })
	return nil
}

func (r *run) cleanUp() error {
	if r.Keep {
		r.say("data, manifests and log are in %s", r.edda.dir)
		return nil
	}
	return os.RemoveAll(r.edda.dir)
}

// pay publishes the payment of an order for the shop.
func (r *run) pay(ctx context.Context, order string, amount int) error {
	if err := r.client.publish("Payment", order, "PaymentReceived", map[string]any{"order_id": order, "amount": amount}); err != nil {
		return err
	}
	return r.client.flush(ctx)
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

func orderID(i int) string { return "O" + strconv.Itoa(i) }
func tripID(i int) string  { return "T" + strconv.Itoa(i) }

// drive sends every order and trip and waits until all sagas have ended.
func (r *run) drive(ctx context.Context) error {
	r.say("sending   %d orders and %d trips through NATS, every %dth twice\n", r.Orders, r.Trips, duplicates)
	began := time.Now()
	r.watch = watchBreaker(ctx, r.edda.api, began)
	defer r.watch.end()
	for i := range r.Orders {
		items := []map[string]any{{"sku": "sku-" + strconv.Itoa(i%7), "qty": 1 + i%3, "price": 5 + i%40}}
		if err := r.client.begin(i, "Order", orderID(i), "OrderPlaced", map[string]any{"order_id": orderID(i), "items": items}); err != nil {
			return err
		}
	}
	for i := range r.Trips {
		if err := r.client.begin(i, "Trip", tripID(i), "TripRequested", map[string]any{"trip_id": tripID(i)}); err != nil {
			return err
		}
	}
	if err := r.client.flush(ctx); err != nil {
		return err
	}
	if err := r.await(ctx); err != nil {
		return err
	}
	r.took = time.Since(began)
	return nil
}

// await shows the progress until all sagas have ended.
func (r *run) await(ctx context.Context) error {
	total := r.Orders + r.Trips
	bar := newBar(r.Out, r.Progress, total)
	defer bar.end()
	for {
		n := r.client.count()
		bar.set(n)
		if n >= total {
			return nil
		}
		select {
		case <-r.client.more:
		case <-ctx.Done():
			return fmt.Errorf("only %d of %d sagas ended in time; the end of edda's log:\n%s", n, total, r.edda.Tail())
		}
	}
}
