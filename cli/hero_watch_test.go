package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/coordinator"
	"edda/hero/jsonrpc"
)

func watchAt(ctx context.Context, url string, patience time.Duration) (w *flowWatch, said *screen, err error) {
	said = newScreen()
	term := &terminal{out: newScreen(), err: said}
	w = &flowWatch{term: term, client: jsonrpc.NewClient(url, jsonrpc.ClientOptions{}), id: flowID{ContextID: 7, ID: 33}, patience: patience, canvas: canvas{out: term.out}}
	return w, said, w.follow(ctx)
}

func TestAWatchGoesOnOverARestartOfTheCoordinator(t *testing.T) {
	s := coordinatorOf(t, func(call int) (hero.FlowStatus, *jsonrpc.Error) {
		switch call {
		case 1, 4:
			return hero.FlowStarted, nil
		case 2:
			return "", jsonrpc.Errorf(jsonrpc.InternalError, "the call was given up: the server stops")
		case 3:
			return "", nil
		}
		return hero.FlowFinished, nil
	})
	w, said, err := watchAt(t.Context(), s.URL, time.Minute)
	if err != nil || w.status != hero.FlowFinished {
		t.Fatalf("%v, %s", err, w.status)
	}
	text := said.String()
	if strings.Count(text, "does not answer (Internal error (-32603): the call was given up: the server stops)") != 1 || strings.Count(text, "edda:") != 2 || !strings.HasSuffix(text, "edda: the coordinator answers again\n") {
		t.Errorf("it said:\n%s", text)
	}
}

func TestAWatchEndsWhereLookingAgainDoesNotHelp(t *testing.T) {
	gone := &jsonrpc.Error{Code: jsonrpc.NotFound, Message: "Not found", Data: coordinator.Detail{Key: "flow:33", Why: "flow:33 does not exist"}}
	for name, test := range map[string]struct {
		first    hero.FlowStatus // what the first call is answered
		no       *jsonrpc.Error  // what the next ones are
		patience time.Duration
	}{
		"the flow was deleted":     {hero.FlowStarted, gone, time.Minute},
		"it is away for too long":  {hero.FlowStarted, nil, watchEvery},
		"it was not there at all":  {"", nil, time.Minute},
		"the first call is denied": {"", gone, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := coordinatorOf(t, func(call int) (hero.FlowStatus, *jsonrpc.Error) {
				if call == 1 && test.first != "" {
					return test.first, nil
				}
				return "", test.no
			})
			_, said, err := watchAt(t.Context(), s.URL, test.patience)
			no := (*jsonrpc.Error)(nil)
			if err == nil || errors.As(err, &no) != (test.no != nil) {
				t.Errorf("ended with %v", err)
			}
			if waited := test.first != "" && test.no == nil; strings.Contains(said.String(), "does not answer") != waited {
				t.Errorf("it said %q", said)
			}
		})
	}
}

func TestAWatchOfACoordinatorThatIsAwayEndsOnDemand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := coordinatorOf(t, func(call int) (hero.FlowStatus, *jsonrpc.Error) {
		if call == 1 {
			return hero.FlowStarted, nil
		}
		cancel()
		return "", nil
	})
	if w, said, err := watchAt(ctx, s.URL, time.Minute); err != nil || w.status != hero.FlowStarted || said.String() != "" {
		t.Errorf("%v %s, said %q", err, w.status, said)
	}
}
