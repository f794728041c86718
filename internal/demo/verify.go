package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"edda/internal/harness"
)

// ended is the end of one instance as the API reports it.
type ended struct {
	Saga       string `json:"saga"`
	Key        string `json:"key"`
	Status     string `json:"status"`
	Reason     string `json:"reason"`
	Generation int    `json:"generation"`
}

// maxShown bounds how many disagreements are printed.
const maxShown = 10

// verify compares the books with the sagas until they agree, and prints the table. It fails
// if they do not agree in time.
func (r *run) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	var all []ended
	err := harness.Poll(ctx, "the books to agree", func() (err error) {
		if all, err = r.instances(ctx); err != nil {
			return err
		}
		return r.compare(all)
	})
	r.table(ctx, all)
	if err != nil {
		return err
	}
	_, repeats := r.shop.Calls()
	r.say("\nThe shop's books agree with all %d sagas: every order was handled exactly once,", len(all))
	r.say("nothing is charged and not shipped, nothing reserved and not released; %d calls came", repeats)
	r.say("again with the idempotency key of an earlier one, and none of them had an effect.")
	return nil
}

// instances reads every instance, page by page.
func (r *run) instances(ctx context.Context) ([]ended, error) {
	var out []ended
	for after := ""; ; {
		var page struct {
			Instances []ended `json:"instances"`
			Next      string  `json:"next"`
		}
		if err := harness.GetJSON(ctx, r.edda.API+"/v1/instances?limit=1000&after="+url.QueryEscape(after), &page); err != nil {
			return nil, err
		}
		out = append(out, page.Instances...)
		if after = page.Next; after == "" {
			return out, nil
		}
	}
}

// compare lists every saga that the books contradict.
func (r *run) compare(all []ended) error {
	var wrong []error
	if want := r.Orders + r.Trips; len(all) != want {
		wrong = append(wrong, fmt.Errorf("there are %d instances, want %d", len(all), want))
	}
	for _, e := range all {
		if err := r.agrees(e); err != nil {
			wrong = append(wrong, fmt.Errorf("%s %s, %s %s: %w", e.Saga, e.Key, e.Status, e.Reason, err))
		}
	}
	if n := len(wrong); n > maxShown {
		wrong = append(wrong[:maxShown], fmt.Errorf("and %d more", n-maxShown))
	}
	return errors.Join(wrong...)
}

// agrees compares the shop's books of one order or trip with its saga.
func (r *run) agrees(e ended) error {
	b := r.shop.Of(e.Key)
	switch {
	case e.Generation != 1:
		return fmt.Errorf("it ran %d times", e.Generation)
	case e.Status == "done" && e.Saga == "trip":
		return b.Done("flight", "car", "hotel")
	case e.Status == "done":
		if b.Charged != 1 || b.Refunded != 0 || b.Shipped != 1 || b.Returned != 0 || !slices.Equal(b.Closed, []string{"Complete"}) {
			return fmt.Errorf("charged %d, refunded %d, shipped %d, called back %d, closed by %v", b.Charged, b.Refunded, b.Shipped, b.Returned, b.Closed)
		}
		return b.Done("stock")
	case e.Status == "failed" || e.Status == "undone":
		if e.Saga == "order" && strings.Join(b.Closed, " ") != "Cancel" {
			return fmt.Errorf("closed by %v, want one Cancel", b.Closed)
		}
		return b.Undone()
	}
	return fmt.Errorf("it has not ended")
}
