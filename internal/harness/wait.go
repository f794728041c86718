package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// pollEvery is how often Poll tries.
	pollEvery = 100 * time.Millisecond
	// answerWithin bounds one request.
	answerWithin = 20 * time.Second
	// maxAnswer bounds the body of an answer: 16 MiB.
	maxAnswer = 16 << 20
)

// fatal marks an error that ends Poll.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal wraps an error so that Poll returns it without another try.
func Fatal(err error) error { return fatal{err} }

// Poll calls try every 100 ms until it returns nil, ctx ends, or the error is Fatal.
func Poll(ctx context.Context, what string, try func() error) error {
	return PollEvery(ctx, pollEvery, what, try)
}

// PollEvery is Poll with another interval.
func PollEvery(ctx context.Context, interval time.Duration, what string, try func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if f := (fatal{}); errors.As(err, &f) {
			return f.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

// Get returns the body of a URL that answers 200 within 20 seconds. The request names
// the tenant "default".
func Get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("x-tenant-id", "default")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return body, err
}

// GetJSON decodes the answer of Get.
func GetJSON(ctx context.Context, url string, into any) error {
	body, err := Get(ctx, url)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Ready returns a check that a URL answers 200.
func Ready(ctx context.Context, url string) func() error {
	return func() error {
		_, err := Get(ctx, url)
		return err
	}
}

// Stops are functions that end parts of a run.
type Stops []func() error

// Add adds the end of a part that was started last.
func (s *Stops) Add(stop func() error) { *s = append(*s, stop) }

// Stop calls all functions, the last added first.
func (s *Stops) Stop() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		errs = append(errs, (*s)[i]())
	}
	*s = nil
	return errors.Join(errs...)
}
