package demo

import (
	"context"
	"fmt"
	"strings"
)

// stay says what there is to look at, and waits until ctx ends.
func (r *run) stay(ctx context.Context) error {
	all, err := r.instances(ctx)
	if err != nil {
		return fmt.Errorf("read the instances: %w", err)
	}
	r.say("%s", r.sights(all))
	<-ctx.Done()
	r.say("stopping edda, then the shop")
	return nil
}

// sights lists commands for the running demo: with an instance of each end.
func (r *run) sights(all []ended) string {
	lines := []string{
		"\nThe shop and edda stay, until Ctrl-C. In another terminal:\n",
		"  export EDDA_URL=" + r.edda.API + " NATS_URL=" + r.edda.NATS,
		"  edda ls --limit 20",
	}
	shown := map[string]bool{}
	for _, e := range all {
		if kind := e.Saga + e.Status + e.Reason; !shown[kind] {
			shown[kind] = true
			line := fmt.Sprintf("  edda instance describe %s %s", e.Saga, e.Key)
			lines = append(lines, fmt.Sprintf("%-40s # %s", line, strings.TrimSpace(e.Status+" "+e.Reason)))
		}
	}
	return strings.Join(append(lines,
		"  edda deadletter list",
		"  edda send Order.OrderPlaced --id MINE --data '{\"order_id\":\"MINE\",\"items\":[{\"sku\":\"a\",\"qty\":1,\"price\":7}]}'",
		"  edda instance describe order MINE",
		"\n"+r.edda.API+" is its page, "+r.shop.URL()+" the shop."), "\n")
}
