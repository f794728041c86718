package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"edda"
	"edda/internal/jsonvalue"
	"edda/stream/wire"
)

// PublishedList is the answer to a batch of CloudEvents, in its order.
type PublishedList struct {
	Events []PublishedView `json:"events"`
}

// acceptCloudEvents lets an operation take CloudEvents beside its own body: in structured mode, in
// binary mode and as a batch.
func (s *Server) acceptCloudEvents(o *huma.Operation) {
	o.Middlewares = append(o.Middlewares, func(hc huma.Context, next func(huma.Context)) {
		if r, w := humago.Unwrap(hc); wire.IsPosted(r.Header) {
			s.publishCloudEvents(hc, w, r)
			return
		}
		next(hc)
	})
	text := &huma.Schema{Type: huma.TypeString}
	one := &huma.Schema{
		Type: huma.TypeObject, Description: "a CloudEvent 1.0", AdditionalProperties: true,
		Properties: map[string]*huma.Schema{"specversion": text, "type": text, "source": text, "id": text},
		Required:   []string{"specversion", "type", "source", "id"},
	}
	many := wire.MaxBatch
	schemas := []*huma.Schema{one, {Type: huma.TypeArray, Items: one, MaxItems: &many}}
	o.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{}}
	for i, name := range wire.ContentTypes() {
		o.RequestBody.Content[name] = &huma.MediaType{Schema: schemas[i]}
	}
}

// publishCloudEvents stores the CloudEvents of a request. It stores none if one of them is wrong.
// Their ids make each of them count once, so a sender that got an error may send all of them again.
func (s *Server) publishCloudEvents(hc huma.Context, w http.ResponseWriter, r *http.Request) {
	tenant, err := s.tenant(r.Header.Get(tenantHeader))
	if err != nil {
		s.refuse(hc, err)
		return
	}
	posted, err := readPosted(r)
	if err != nil {
		s.refuse(hc, err)
		return
	}
	events, err := s.decodePosted(r, tenant, posted)
	if err != nil {
		s.refuse(hc, err)
		return
	}
	list := PublishedList{Events: make([]PublishedView, 0, len(events))}
	ctx, cancel := context.WithTimeout(r.Context(), s.options.CommitWait)
	defer cancel()
	for i, ev := range events {
		stored, err := s.options.Inbox.Publish(ctx, ev)
		if err != nil {
			s.refuse(hc, s.unstored(i, len(events), ev, err))
			return
		}
		list.Events = append(list.Events, PublishedView{ev.ID, stored})
	}
	if posted.Batch {
		answer(w, http.StatusOK, list)
		return
	}
	answer(w, http.StatusOK, list.Events[0])
}

// refuse answers with a huma error and its details.
func (s *Server) refuse(hc huma.Context, err error) {
	status, details := http.StatusInternalServerError, []error(nil)
	var known huma.StatusError
	if errors.As(err, &known) {
		status = known.GetStatus()
	}
	var model *huma.ErrorModel
	if errors.As(err, &model) {
		for _, d := range model.Errors {
			details = append(details, d)
		}
	}
	_ = huma.WriteErr(s.api, hc, status, err.Error(), details...) // an error here means that the client has disconnected
}

// readPosted reads the body, within the limit of the server.
func readPosted(r *http.Request) (wire.Posted, error) {
	data, err := io.ReadAll(r.Body)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return wire.Posted{}, huma.NewError(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes: send fewer or smaller events", tooLong.Limit))
	case err != nil:
		return wire.Posted{}, huma.Error400BadRequest("the body cannot be read: " + err.Error())
	}
	if err := unambiguous(data); err != nil {
		return wire.Posted{}, huma.Error400BadRequest("the body cannot be taken: " + err.Error())
	}
	posted, err := wire.ReadPosted(r.Header, data)
	if err != nil {
		return wire.Posted{}, huma.Error400BadRequest(err.Error())
	}
	return posted, nil
}

// unambiguous refuses JSON in which an object repeats a name; see readAlike. Other data pass.
func unambiguous(data []byte) error {
	if !json.Valid(data) {
		return nil
	}
	if name := repeatedName(data); name != nil {
		return fmt.Errorf("the name %.80s is there twice in one object", name)
	}
	return nil
}

// decodePosted decodes and checks all events. The error has a detail for each wrong one.
func (s *Server) decodePosted(r *http.Request, tenant string, posted wire.Posted) ([]edda.Event, error) {
	who, err := noted(r)
	if err != nil {
		return nil, err
	}
	var wrong []error
	events := make([]edda.Event, 0, len(posted.Events))
	for i, m := range posted.Events {
		ev, err := s.decodeOne(tenant, m)
		if err != nil && !posted.Batch {
			return nil, huma.Error400BadRequest(err.Error())
		}
		if err != nil {
			wrong = append(wrong, &huma.ErrorDetail{Location: fmt.Sprintf("body[%d]", i), Message: err.Error()})
			continue
		}
		who.sign(&ev)
		events = append(events, ev)
	}
	if wrong == nil {
		return events, nil
	}
	return nil, huma.Error400BadRequest(fmt.Sprintf("%d of %d CloudEvents are wrong, and none is stored: correct them and send the batch again", len(wrong), len(posted.Events)), wrong...)
}

func (s *Server) decodeOne(tenant string, m wire.Message) (edda.Event, error) {
	ev, err := s.codec.PostedEvent(tenant, m)
	if err != nil {
		return ev, err
	}
	if _, err := jsonvalue.Decode(ev.Payload); err != nil {
		return ev, fmt.Errorf("the data cannot be taken: %w", err)
	}
	if err := unambiguous(ev.Payload); err != nil { // which may have come in base64
		return ev, fmt.Errorf("the data cannot be taken: %w", err)
	}
	_, err = s.codec.Input(ev)
	return ev, err
}

// noted returns who calls and why, from the headers.
func noted(r *http.Request) (Operator, error) {
	const maxBy, maxWhy = 200, 1000 // as in Operator
	a := Operator{By: r.Header.Get(byHeader), Why: r.Header.Get(whyHeader)}
	if utf8.RuneCountInString(a.By) > maxBy || utf8.RuneCountInString(a.Why) > maxWhy {
		return a, huma.Error422UnprocessableEntity(fmt.Sprintf("x-edda-by has at most %d characters, and x-edda-why %d", maxBy, maxWhy))
	}
	return a, nil
}

const whyHeader = "X-Edda-Why"

// unstored says which event of how many could not be stored.
func (s *Server) unstored(place, of int, ev edda.Event, err error) error {
	what := fmt.Sprintf("CloudEvent %s is not known to be stored", ev.ID)
	if of > 1 {
		what = fmt.Sprintf("CloudEvent %d of the batch, %s, is not known to be stored; those before it are", place, ev.ID)
	}
	switch {
	case errors.Is(err, edda.Permanent):
		return huma.Error422UnprocessableEntity(what + ": " + err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return huma.Error504GatewayTimeout(fmt.Sprintf("%s within %s: send the same again, each id counts once", what, s.options.CommitWait))
	}
	return huma.Error503ServiceUnavailable(fmt.Sprintf("%s: %v: send the same again, each id counts once", what, err))
}

// allowWebhook answers the handshake of the CloudEvents webhook specification, in which a sender
// asks whether it may deliver here. The right to the route is the consent.
func allowWebhook(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", "OPTIONS, POST")
	if origin := r.Header.Get("WebHook-Request-Origin"); origin != "" {
		w.Header().Set("WebHook-Allowed-Origin", origin)
		w.Header().Set("WebHook-Allowed-Rate", "*")
	}
	w.WriteHeader(http.StatusOK)
}
