package sqleffect

import (
	"context"
	"encoding/json"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

// post is a source of one effect's commands, and a publisher.
type post struct {
	in  map[string]chan effects.Command
	out chan effects.Result
}

func (p post) Fetch(ctx context.Context, effect string, _ int, _ time.Duration) ([]effects.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c := <-p.in[effect]:
		return []effects.Delivery{&effecttest.FakeDelivery{C: c}}, nil
	}
}

func (p post) PublishResult(_ context.Context, r effects.Result) error {
	p.out <- r
	return nil
}

// do is the result of one command.
func (p post) do(id, effect, payload string) effects.Result {
	p.in[effect] <- effects.Command{Tenant: "acme", ID: id, Effect: effect, Payload: json.RawMessage(payload)}
	return <-p.out
}

// work runs a worker with a real store and this provider until the test ends.
func work(t *testing.T, text, dsn string) post {
	t.Helper()
	f, problems := manifests.Parse("e.yaml", []byte(text))
	p := post{map[string]chan effects.Command{}, make(chan effects.Result, 10)}
	var all []*effects.Effect
	for _, m := range f.Effects {
		e, more := effects.Compile(m, map[string]effects.ProviderKind{"sql": Kind()})
		if problems = append(problems, more...); e != nil {
			all = append(all, e)
			p.in[e.Name()] = make(chan effects.Command)
		}
	}
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	effecttest.StartWorker(t, effects.Options{
		Source: p, Publisher: p, Providers: map[string]effects.Provider{"sql": local(t)},
		Secrets: effects.Secrets{Environ: func(string) (string, bool) { return dsn, true }},
	}, all...)
	return p
}

// example is the embedded manifest with a database's own placeholders.
func (s side) example(t *testing.T) string {
	t.Helper()
	b, err := fs.ReadFile(manifests.Examples(), "effect-sql.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s.name == "postgres" {
		return string(b)
	}
	return regexp.MustCompile(`\$[0-9]`).ReplaceAllString(string(b), "?")
}

func (s side) shop(t *testing.T) {
	t.Helper()
	s.exec(t, "create table accounts (id varchar(20) primary key, balance integer)")
	s.exec(t, "insert into accounts (id, balance) values ('ann', 100)")
	s.exec(t, "create table orders (id integer primary key, customer varchar(20), total numeric(10,2), note text)")
	s.exec(t, "insert into orders (id, customer, total) values (1, 'x', 1.50), (11, 'x', 1.50), (12, 'y', 7)")
}

func TestTheExampleOnEachDatabase(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.shop(t)
		p := work(t, s.example(t), s.dsn)
		total := map[string]string{"sqlite": "1.5"}[s.name]
		if total == "" {
			total = `"1.50"`
		}
		for _, tt := range []struct {
			id, effect, payload string
			outcome             edda.Outcome
			want                string
		}{
			{"c1", "take_from_account", `{"account":"ann","amount":60}`, edda.Succeeded, `{"taken":60}`},
			{"c2", "take_from_account", `{"account":"ann","amount":60}`, edda.Failed, `"attempts":1`},
			{"c3", "take_from_account", `{"account":"' or 1=1 --","amount":1}`, edda.Failed, `"status":200`},
			{"c4", "take_from_account", `{"account":"ann","amount":0}`, edda.Failed, `"code":"schema"`},
			{"c5", "list_orders", `{"customer":"x"}`, edda.Succeeded, `{"orders":[{"id":1,"note":null,"total":` + total + `},{"id":11,"note":null,"total":` + total + `}]}`},
			{"c6", "list_orders", `{"customer":"nobody"}`, edda.Succeeded, `{"orders":[]}`},
		} {
			r := p.do(tt.id, tt.effect, tt.payload)
			if r.Outcome != tt.outcome || !strings.Contains(string(r.Payload), tt.want) {
				t.Errorf("%s: %s %s, want %s", tt.id, r.Outcome, r.Payload, tt.want)
			}
		}
		if n := s.number(t, "select balance from accounts where id = 'ann'"); n != 40 {
			t.Errorf("balance %d", n)
		}
	})
}

// TestAnAtMostOnceEffectIsCalledAgainAfterALostCommit, because its row tells.
func TestAnAtMostOnceEffectIsCalledAgainAfterALostCommit(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.shop(t)
		proxy := newCutter(t, address(s.name))
		p := work(t, s.example(t), s.at(proxy.Addr().String(), ""))
		proxy.cutOnce("COMMIT")
		r := p.do("c1", "take_from_account", `{"account":"ann","amount":60}`)
		if r.Outcome != edda.Succeeded || r.Attempts != 2 {
			t.Errorf("%s %s after %d calls", r.Outcome, r.Payload, r.Attempts)
		}
		if n := s.number(t, "select balance from accounts where id = 'ann'"); n != 40 {
			t.Errorf("balance %d", n)
		}
	})
}
