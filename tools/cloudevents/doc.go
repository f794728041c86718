// Package cloudevents tests that Edda takes the CloudEvents of other people's programs: those of the
// CloudEvents SDK for Go, over NATS and HTTP, with the payloads of webhooks.
package cloudevents
