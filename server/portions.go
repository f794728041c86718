package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"edda"
	"edda/store"
)

// A command on many dead letters works in portions, one per call. The answer says where
// the next portion begins, so the server keeps no state between calls. If the caller or
// the process stops, finished dead letters stay finished. The same call then continues,
// because a finished dead letter no longer exists.

// portionTime is how long a call starts further dead letters. It has 100 at most, and
// each waits for its commit. The last one may take commitWait more; clients wait longer
// than both.
const portionTime = 10 * time.Second

// LetterPortion is the outcome of a portion of dead letters.
type LetterPortion struct {
	Done     int             `json:"done"`
	Failed   int             `json:"failed"`
	Passed   int             `json:"passed,omitempty"` // skip: dead letters that hold no key
	Failures []LetterFailure `json:"failures"`         // those that failed, in their order
	// Next is the after of the next portion. It is empty when no dead letter remains
	// that existed when the first portion began.
	Next string `json:"next,omitempty"`
	// Stopped says why the portion ended early. The next one continues.
	Stopped string `json:"stopped,omitempty"`
}

// LetterFailure is a dead letter that remains, and the error.
type LetterFailure struct {
	DeadLetter string `json:"dead_letter"`
	Error      string `json:"error"`
}

type portionInput struct {
	TenantInput
	Operator
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"100" doc:"at most so many letters in this call"`
	After string `query:"after" doc:"next of the portion before"`
	DeadFilter
	Body *struct {
		Why string `json:"why,omitempty" doc:"as the header x-edda-why" maxLength:"1000"`
	}
}

type deadLetterFunc func(context.Context, *letterInput, edda.DeadLetter) (*body[LetterActView], error)

func (s *Server) deadLetterPortions() {
	const base = "/v1/deadletters/"
	huma.Post(s.api, base+edda.VerbRedrive, s.portionOf(edda.VerbRedrive, s.redrive), summary("Redrive many dead letters, one portion per call", "dead letters"))
	huma.Post(s.api, base+edda.VerbDrop, s.portionOf(edda.VerbDrop, s.drop), summary("Drop many dead letters, one portion per call", "dead letters"))
	huma.Post(s.api, base+edda.VerbSkip, s.portionOf(edda.VerbSkip, s.skip), summary("Skip the poison events of many keys, one portion per call", "dead letters"))
}

// portion is the work of one call.
type portion struct {
	*Server
	in   *portionInput
	verb string
	do   deadLetterFunc
	from portionPlace
	out  LetterPortion
}

// portionPlace is the cursor of the portions. They skip dead letters newer than Until, the
// start of the first portion, because one that fails again would be tried for ever.
type portionPlace struct {
	After string    `json:"after,omitempty"`
	Until time.Time `json:"until"`
}

func (p portionPlace) text() string {
	raw, _ := json.Marshal(p) // a string and a time always marshal
	return base64.RawURLEncoding.EncodeToString(raw)
}

func parsePortionPlace(text string) (p portionPlace, err error) {
	if text == "" {
		return portionPlace{Until: time.Now().UTC()}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Until.IsZero() {
		return p, huma.Error422UnprocessableEntity(fmt.Sprintf("after: %.100q is no place among the dead letters: give the next of the portion before", text))
	}
	return p, nil
}

func (s *Server) portionOf(verb string, do deadLetterFunc) func(context.Context, *portionInput) (*body[LetterPortion], error) {
	return func(ctx context.Context, in *portionInput) (*body[LetterPortion], error) {
		if in.Body != nil && in.Body.Why != "" {
			in.Why = in.Body.Why
		}
		if err := in.reasoned(verb); err != nil {
			return nil, err
		}
		from, err := parsePortionPlace(in.After)
		if err != nil {
			return nil, err
		}
		p := &portion{Server: s, in: in, verb: verb, do: do, from: from, out: LetterPortion{Failures: []LetterFailure{}}}
		return p.run(ctx)
	}
}

func (p *portion) run(ctx context.Context) (*body[LetterPortion], error) {
	tenant, err := p.tenant(p.in.Tenant)
	if err != nil {
		return nil, err
	}
	letters, next, err := p.letters(ctx)
	if err != nil {
		return nil, err
	}
	p.each(ctx, letters)
	if p.out.Stopped == "" && next != "" {
		p.out.Next = portionPlace{next, p.from.Until}.text()
	}
	if err := p.audited(ctx, tenant); err != nil {
		return nil, err
	}
	return &body[LetterPortion]{p.out}, nil
}

// letters lists the dead letters of the portion and the place of the next one. It reads
// one more, so that there is a next place only if there is more work.
func (p *portion) letters(ctx context.Context) (out []edda.DeadLetter, next string, err error) {
	page, err := p.listDead(ctx, &deadListInput{
		TenantInput: p.in.TenantInput, Limit: p.in.Limit + 1, After: p.from.After, DeadFilter: p.in.DeadFilter,
	})
	if err != nil {
		return nil, "", err
	}
	out, next = page.Body.DeadLetters, page.Body.Next
	if len(out) > p.in.Limit {
		out = out[:p.in.Limit]
		next = store.DeadPlace(out[len(out)-1])
	}
	late := slices.IndexFunc(page.Body.DeadLetters, func(d edda.DeadLetter) bool { return d.Time.After(p.from.Until) })
	if late >= 0 { // they are sorted by time
		return page.Body.DeadLetters[:late], "", nil
	}
	return out, next, nil
}

// each runs the command on the dead letters, in the original order of their events. It
// stops early if one fails because of the process and not because of the dead letter.
func (p *portion) each(ctx context.Context, letters []edda.DeadLetter) {
	began, seen := time.Now(), map[string]bool{}
	for _, d := range inOrder(letters) {
		if err := p.mayGoOn(ctx, began); err != nil {
			p.stop(letters, seen, err)
			return
		}
		if err := p.one(ctx, d); err != nil {
			p.stop(letters, seen, err)
			return
		}
		seen[d.ID] = true
	}
}

// inOrder sorts dead letters by the original order of their events.
func inOrder(letters []edda.DeadLetter) []edda.DeadLetter {
	return slices.SortedStableFunc(slices.Values(letters), func(a, b edda.DeadLetter) int {
		return cmp.Or(a.Event.Time.Compare(b.Event.Time), cmp.Compare(a.Event.Stream, b.Event.Stream), cmp.Compare(a.Event.Seq, b.Event.Seq), cmp.Compare(a.Event.Member, b.Event.Member))
	})
}

func (p *portion) mayGoOn(ctx context.Context, began time.Time) error {
	if time.Since(began) > portionTime {
		return fmt.Errorf("it has taken %s", portionTime)
	}
	return ctx.Err()
}

// one runs the command on a dead letter. An error means that the process cannot do it now.
func (p *portion) one(ctx context.Context, d edda.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.CommitWait)
	defer cancel()
	in := &letterInput{LetterInput: LetterInput{TenantInput: p.in.TenantInput, ID: d.ID}, Operator: p.in.Operator}
	if p.verb == edda.VerbSkip {
		switch holds, _, err := p.holding(d); {
		case err != nil:
			return err
		case !holds:
			p.out.Passed++
			return nil
		}
	}
	_, err := p.do(ctx, in, d)
	status := huma.StatusError(nil)
	switch {
	case err == nil:
		p.out.Done++
	case errors.As(err, &status) && status.GetStatus() < http.StatusInternalServerError:
		p.out.Failed++
		p.out.Failures = append(p.out.Failures, LetterFailure{d.ID, err.Error()})
	default:
		return err
	}
	return nil
}

// stop records why the portion ends early. The next one begins after the leading dead
// letters that are done. Those done beyond that place no longer exist.
func (p *portion) stop(letters []edda.DeadLetter, seen map[string]bool, why error) {
	at := p.from
	for _, d := range letters {
		if !seen[d.ID] {
			break
		}
		at.After = store.DeadPlace(d)
	}
	p.out.Stopped, p.out.Next = why.Error(), at.text()
}

// audited writes the audit entry of the whole portion; each dead letter has its own entry
// too. It ignores the end of ctx, because the work is done.
func (p *portion) audited(ctx context.Context, tenant string) error {
	if p.out.Done+p.out.Failed+p.out.Passed == 0 {
		return nil
	}
	detail := fmt.Sprintf("all dead letters%s: %d done, %d failed", p.chosen(), p.out.Done, p.out.Failed)
	if p.out.Passed > 0 {
		detail += fmt.Sprintf(", %d hold nothing", p.out.Passed)
	}
	if p.out.Next != "" {
		detail += "; more to come"
	}
	by := store.Audit{Time: time.Now().UTC(), By: cmp.Or(p.in.By, "unknown"), Verb: p.verb, Key: edda.Key{Tenant: tenant, Saga: p.in.Saga}, Reason: p.in.Why, Detail: detail}
	if err := p.options.DeadLetters.Note(context.WithoutCancel(ctx), by); err != nil {
		return huma.Error503ServiceUnavailable(fmt.Sprintf("%s, but the audit of it as a whole could not be written: %v; each letter has its own", detail, err))
	}
	return nil
}

// chosen returns the filter in words.
func (p *portion) chosen() (words string) {
	if p.in.Saga != "" {
		words += " of saga " + p.in.Saga
	}
	if p.in.Reason != "" {
		words += " that died of " + string(p.in.Reason)
	}
	return words
}
