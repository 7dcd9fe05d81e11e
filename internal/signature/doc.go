// Package signature signs and checks requests between the parts of a queue:
// a trigger and the drain it calls, a scheduler and the sweep, a producer and
// the enqueue API.
//
// A signed request carries two headers:
//
//	Doze-Timestamp: 1767225600
//	Doze-Signature: v1=<hex of HMAC-SHA256(secret, timestamp "." body)>
//
// Doze-Signature may list several signatures, parted by commas; one that
// matches is enough, and versions other than v1 are passed over. The method and
// the path are not signed: give each door a secret of its own where a request
// for one must not pass at another.
//
// A copied request passes again until it is [Tolerance] old, so what it asks
// for must be harmless when repeated.
package signature
