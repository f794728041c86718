package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda"
	"edda/internal/jsonvalue"
	"edda/manifests"
	"edda/saga"
	"edda/server"
)

// evaluation holds the flags of edda eval.
type evaluation struct {
	storeVerb
	instance, event, eventType, state, payload, manifest string
	vars                                                 []string
	names                                                bool
}

func (t *terminal) evalCommand() *cobra.Command {
	e := &evaluation{storeVerb: storeVerb{client: client{term: t}}}
	cmd := &cobra.Command{
		Use: "eval EXPR", Short: "Evaluate an expression of a manifest, over an instance, an event or JSON",
		Long: `Evaluate an expression, with or without its =, and print its value as JSON.

--instance reads an instance from the store here, or from the process that holds it.
--event is a payload; --state, --payload and --var give other values. JSON may be
@FILE, or - for standard input. A name without a value is null.

--names lists the names in scope with their values, and the functions.`,
		Example: `  edda eval 'sum(event.items, .qty * .price)' --event '{"items":[{"qty":2,"price":10}]}'
  edda eval '=step.ship.result.tracking' --instance order/O1
  edda eval 'addTime(now, "36h")' --event @placed.json --type Order.OrderPlaced
  edda eval --names --instance order/O1`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			if (len(a) == 0) != e.names {
				return usagef("give an expression, or --names; use it as: %s", cmd.UseLine())
			}
			s, err := e.surroundings(cmd.Context())
			if err != nil {
				return err
			}
			if e.names {
				e.printNames(s)
				return nil
			}
			value, problems := s.Evaluate(a[0])
			if len(problems) > 0 {
				problems.Print(t.err, t.color(t.err))
				return &silentError{}
			}
			return indented(t.out, value)
		},
	}
	e.register(cmd)
	f := cmd.Flags()
	f.StringVar(&e.instance, "instance", "", "instance to read, as SAGA/KEY")
	f.StringVar(&e.event, "event", "", "payload of the trigger: event")
	f.StringVar(&e.eventType, "type", "", "type of the trigger, as for edda send: meta.type")
	f.StringVar(&e.state, "state", "", "state, instead of the instance's")
	f.StringVar(&e.payload, "payload", "", "payload of an effect's command: payload")
	f.StringArrayVar(&e.vars, "var", nil, "further name, as NAME=JSON; repeatable")
	f.StringVar(&e.manifest, "manifest", "", "file of the saga, for config")
	f.BoolVar(&e.names, "names", false, "list the names in scope, and the functions")
	return cmd
}

// surroundings reads the values that the flags name.
func (e *evaluation) surroundings(ctx context.Context) (*saga.Surroundings, error) {
	s := &saga.Surroundings{Vars: map[string]json.RawMessage{}}
	if e.instance != "" {
		in, err := e.read(ctx)
		if err != nil {
			return nil, err
		}
		s.Instance, s.Event.Time = in, in.Updated
	}
	for name, given := range map[string]string{"event": e.event, "state": e.state, "payload": e.payload} {
		if err := e.give(s, name, "--"+name, given); err != nil {
			return nil, err
		}
	}
	for _, v := range e.vars {
		name, text, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, usagef("--var %q: want NAME=JSON", v)
		}
		if err := e.give(s, name, "--var "+name, text); err != nil {
			return nil, err
		}
	}
	if e.eventType != "" {
		s.Event = edda.NamedEvent(e.eventType)
		s.Event.Version = cmp.Or(s.Event.Version, 1)
	}
	if s.Event.Time.IsZero() {
		s.Event.Time = time.Now()
	}
	if e.manifest == "" {
		return s, nil
	}
	return s, e.constants(s)
}

// give adds a value that a flag holds as JSON.
func (e *evaluation) give(s *saga.Surroundings, name, flag, given string) error {
	if given == "" {
		return nil
	}
	text, err := e.term.content(flag, given)
	if err != nil {
		return err
	}
	if err := jsonvalue.Check(json.RawMessage(text)); err != nil {
		return usagef("%s: %w; a text is JSON in quotes", flag, err)
	}
	s.Vars[name] = json.RawMessage(text)
	return nil
}

// read reads the instance from the store, or from the process that holds it.
func (e *evaluation) read(ctx context.Context) (*edda.Instance, error) {
	name, key, ok := strings.Cut(e.instance, "/")
	if !ok || name == "" || key == "" {
		return nil, usagef("--instance %q: want SAGA/KEY", e.instance)
	}
	db, err := e.open(ctx, false)
	if err != nil {
		return nil, err
	}
	if db == nil {
		var view server.InstanceView
		if _, err := e.get(ctx, instancePath([]string{name, key}), &view); err != nil {
			return nil, err
		}
		return existing(view.Instance, e.instance)
	}
	tenant := cmp.Or(e.tenant, e.term.getenv("EDDA_TENANT"), "default")
	cell, err := db.Cell(edda.Key{Tenant: tenant, Saga: name, Correlation: key})
	if err := errors.Join(err, db.stop()); err != nil {
		return nil, err
	}
	return existing(cell.Instance, e.instance+" of tenant "+tenant)
}

func existing(in *edda.Instance, what string) (*edda.Instance, error) {
	if in == nil {
		return nil, fmt.Errorf("there is no instance %s: edda instance list shows those there are", what)
	}
	return in, nil
}

// constants finds the saga of the instance in the manifest, or its only one.
func (e *evaluation) constants(s *saga.Surroundings) error {
	files, problems, err := manifests.ParseFiles(e.manifest)
	if err != nil {
		return err
	}
	if errors := onlyErrors(problems); len(errors) > 0 {
		errors.Print(e.term.err, e.term.color(e.term.err))
		return &silentError{}
	}
	sagas := sagasOf(files)
	for _, m := range sagas {
		if s.Instance != nil && m.Name.Text == s.Instance.Key.Saga || s.Instance == nil && len(sagas) == 1 {
			s.Saga = m
			return nil
		}
	}
	return usagef("--manifest %s holds %d sagas: name one of them with --instance SAGA/KEY", e.manifest, len(sagas))
}

// maxNameValue bounds the value of a name in the list.
const maxNameValue = 100

func (e *evaluation) printNames(s *saga.Surroundings) {
	var lines [][]string
	for _, n := range s.Names() {
		value := []rune(compact(s.Value(n[0])))
		if len(value) > maxNameValue {
			value = append(value[:maxNameValue], '…')
		}
		lines = append(lines, []string{n[0], n[1], string(value)})
	}
	rows(e.term.out, []string{"name", "what it is", "value"}, lines)
	fmt.Fprintf(e.term.out, "\nfunctions: %s\n", strings.Join(saga.Functions(), ", "))
}
