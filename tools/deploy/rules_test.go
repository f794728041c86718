//go:build !race

package deploy

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v4"
)

const rulesFile = "deploy/prometheus/edda-rules.yaml"

// rules are the alerts of the file, as Prometheus reads it.
func rules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, rulesFile)), false, model.UTF8Validation, promQL(), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups != nil {
		for _, g := range groups.Groups {
			all = append(all, g.Rules...)
		}
	}
	if len(all) < 20 {
		t.Fatalf("the file has %d alerts", len(all))
	}
	return all
}

func promQL() parser.Parser { return parser.NewParser(parser.Options{}) }

// ruleTests is a file of promtool's unit tests. The queries are of ALERTS alone.
type ruleTests struct {
	Tests []struct {
		Name     string         `yaml:"name"`
		Interval model.Duration `yaml:"interval"`
		Input    []struct {
			Series, Values string
		} `yaml:"input_series"`
		Queries []struct {
			Expr    string         `yaml:"expr"`
			At      model.Duration `yaml:"eval_time"`
			Samples []struct {
				Labels string  `yaml:"labels"`
				Value  float64 `yaml:"value"`
			} `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	} `yaml:"tests"`
}

// sample is a number at a time.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// database has the series of one test.
type database struct{ series []storage.Series }

func (d *database) add(t *testing.T, text string, interval time.Duration) {
	t.Helper()
	name, values, err := promQL().ParseSeriesDesc(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var samples []chunks.Sample
	for i, v := range values {
		if !v.Omitted {
			samples = append(samples, sample{int64(i) * interval.Milliseconds(), v.Value})
		}
	}
	d.series = append(d.series, storage.NewListSeries(name, samples))
}

func (d *database) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		return &set{at: -1, series: slices.DeleteFunc(slices.Clone(d.series), func(s storage.Series) bool { return !matches(s.Labels(), matchers) })}
	}}, nil
}

func matches(l labels.Labels, all []*labels.Matcher) bool {
	return !slices.ContainsFunc(all, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) })
}

type set struct {
	at     int
	series []storage.Series
}

func (s *set) Next() bool         { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series { return s.series[s.at] }
func (s *set) Err() error         { return nil }

func (s *set) Warnings() annotations.Annotations { return nil }

// firing returns the alerts that fire at a time, as the series ALERTS, when each rule is evaluated
// every interval.
func firing(t *testing.T, d *database, rules []rulefmt.Rule, interval, at time.Duration) (out []labels.Labels) {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, Parser: promQL()})
	defer func() { _ = engine.Close() }()
	for _, r := range rules {
		since := map[string]time.Duration{} // by the labels of the result
		for now := time.Duration(0); now <= at; now += interval {
			q, err := engine.NewInstantQuery(context.Background(), d, nil, r.Expr, time.UnixMilli(now.Milliseconds()))
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			vector, err := q.Exec(context.Background()).Vector()
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			before := since
			since = map[string]time.Duration{}
			for _, s := range vector {
				b := labels.NewBuilder(s.Metric).Del(model.MetricNameLabel)
				for name, value := range r.Labels {
					b.Set(name, value)
				}
				l := b.Set(model.MetricNameLabel, "ALERTS").Set("alertname", r.Alert).Set("alertstate", "firing").Labels()
				begin, was := before[l.String()]
				if !was {
					begin = now
				}
				since[l.String()] = begin
				if now == at && now-begin >= time.Duration(r.For) {
					out = append(out, l)
				}
			}
			q.Close()
		}
	}
	return out
}

func TestEveryAlertFiresOnItsTroubleAndNotBefore(t *testing.T) {
	t.Parallel()
	all, fired, quiet := rules(t), map[string]bool{}, map[string]bool{}
	var file ruleTests
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/edda-rules-test.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, test := range file.Tests {
		d := &database{}
		for _, in := range test.Input {
			d.add(t, in.Series+" "+in.Values, time.Duration(test.Interval))
		}
		one := slices.DeleteFunc(slices.Clone(all), func(r rulefmt.Rule) bool { return r.Alert != test.Name })
		if len(one) != 1 {
			t.Errorf("%d alerts are called %s", len(one), test.Name)
		}
		for _, q := range test.Queries {
			want := []string{}
			for _, s := range q.Samples {
				l, err := promQL().ParseMetric(strings.TrimSpace(s.Labels))
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, l.String())
			}
			got := []string{}
			for _, l := range firing(t, d, one, time.Duration(test.Interval), time.Duration(q.At)) {
				got = append(got, l.String())
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s at %s:\n got %v\nwant %v", test.Name, q.At, got, want)
			}
			if len(want) > 0 {
				fired[test.Name] = true
			} else {
				quiet[test.Name] = true
			}
		}
	}
	for _, r := range all {
		if !fired[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: no test in which it fires, or none in which it does not", r.Alert)
		}
	}
}

// The manual says of each alert what to do, and the alert says where.
func TestEveryAlertHasItsLineInTheManual(t *testing.T) {
	t.Parallel()
	_, page, found := strings.Cut(read(t, "docs/OPERATING.md"), "\n### Alerts\n")
	if !found {
		t.Fatal("the manual has no section Alerts")
	}
	page, _, _ = strings.Cut(page, "\n### ")
	for _, r := range rules(t) {
		if r.Annotations["runbook"] != "docs/OPERATING.md#alerts" || r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s lacks its runbook, summary or severity", r.Alert)
		}
		if strings.Count(page, "| `"+r.Alert+"` |") != 1 {
			t.Errorf("the table of alerts does not have %s once", r.Alert)
		}
	}
}
