/*
 * The table of findings about a seller's URL, for catalogs and clients. The API returns its codes, and docs/discovery.md lists them.
 */

/** `error`: a catalog doesn't list the URL, or lists it last. `warning`: it is listed, but some clients can't find or buy it. */
export type Severity = 'error' | 'warning' | 'ok'

type Described = { severity: Severity; means: string; advice: string | null }

const asExpected = (means: string): Described => ({ severity: 'ok', means, advice: null })
const warning = (means: string, advice: string): Described => ({ severity: 'warning', means, advice })
const error = (means: string, advice: string): Described => ({ severity: 'error', means, advice })

const table = {
  // Reachability.
  url_refused: error(
    'The URL is not https, or its host is not public.',
    'Serve it at a public https URL without a user name or password.',
  ),
  unresolved: error(
    'The host name has no address.',
    'Add a DNS record for the host, or correct the registered URL.',
  ),
  unreachable: error(
    'No connection could be made, or the connection closed without an answer.',
    'Check that the server is running and that its firewall allows requests from the internet.',
  ),
  tls_failed: error(
    'The TLS certificate is expired, is for another name, or is not signed by a public authority.',
    'Renew the certificate, and serve its whole chain.',
  ),
  timeout: error(
    'No complete answer arrived in time.',
    'Answer a request without a payment within 5 seconds: ask for payment before any slow work.',
  ),
  headers_too_large: error(
    'The answer has more headers than HTTP clients accept.',
    'Shorten the challenge: 16 KiB of headers is the usual limit, and many proxies accept only 8 KiB.',
  ),
  not_http: error('The server does not answer by HTTP.', 'Register the URL of an HTTP server.'),

  // HTTP status.
  answers_402: asExpected('It asks for payment.'),
  serves_unpaid: error(
    'It serves a request that has no payment.',
    'Put the middleware in front of this route, for this method.',
  ),
  redirects: error(
    'It redirects. Catalogs and paying clients do not follow redirects.',
    'Register exactly the URL that it redirects to, including scheme, host and trailing slash.',
  ),
  asks_for_login: error(
    'It asks for a login before it asks for payment.',
    'Answer 402 first. If callers need both, let them pay in PAYMENT-SIGNATURE and log in with Authorization.',
  ),
  blocked: error(
    'A firewall or CDN answers with a page for browsers instead of the API.',
    'Exempt this path from bot protection: agents cannot solve its challenge pages.',
  ),
  forbidden: error(
    'It refuses the request without asking for payment.',
    'Answer 402 to a request that has no payment.',
  ),
  not_found: error('Nothing is served at this URL.', 'Compare path and method with your routes.'),
  method_not_allowed: error(
    'The URL does not accept this method.',
    'Register the method by which it is sold. The gateway checks PUT and PATCH endpoints by POST, and DELETE endpoints by GET.',
  ),
  checks_input_first: error(
    'It checks the input before it asks for payment.',
    'Ask for payment first, or register a valid inputExample. The gateway sends the example once another URL of this server is proven.',
  ),
  rate_limited: error(
    'It rejects the request because of a rate limit.',
    'Answer 402 before you apply rate limits.',
  ),
  server_error: error(
    'The server fails.',
    "See the server's log. A middleware that cannot reach its gateway answers 503.",
  ),
  unexpected_status: error('It answers neither 402 nor an error that clients know.', 'Answer 402.'),

  // The challenge.
  challenge_readable: asExpected('Clients can read its challenge.'),
  no_challenge: error(
    'Its 402 has no x402 challenge.',
    'Send the PAYMENT-REQUIRED header (x402 v2), an x402 v1 body, or the body that our middleware sends.',
  ),
  header_unreadable: warning(
    'PAYMENT-REQUIRED is not JSON in base64.',
    'Encode the JSON as UTF-8 and then as base64 (RFC 4648, section 4).',
  ),
  no_header: warning(
    'PAYMENT-REQUIRED is missing, so clients of x402 v2 cannot pay.',
    'Send the challenge in the header as well.',
  ),
  challenge_invalid: warning(
    'The body has the format of our challenge, but a field is wrong.',
    'Use the current middleware, and let no proxy change the body.',
  ),
  body_cut: warning('The body of the 402 is longer than catalogs read.', 'Keep the 402 below 32 KiB.'),

  // The offers.
  offer_usable: asExpected('It makes an offer that clients can pay.'),
  no_usable_offer: error(
    'No offer can be paid with USDC by EIP-3009 on a network that is known here.',
    "Offer a payment in Circle's USDC with the scheme `exact`, on a network that this gateway lists.",
  ),
  unknown_network: warning(
    'An offer is for a network that is not known here.',
    'Name networks by CAIP-2, such as eip155:8453.',
  ),
  other_scheme: warning('An offer has a scheme that few clients know.', 'Offer scheme exact as well.'),
  not_usdc: warning(
    "An offer's asset is not Circle's USDC.",
    "Use Circle's contract address for that network.",
  ),
  invalid_amount: warning(
    "An offer's amount is not a whole number of base units above 0.",
    'Write base units as a decimal string: 0.01 USDC is "10000".',
  ),
  invalid_pay_to: warning("An offer's payTo is not an address.", 'Give the wallet as 0x and 40 hex digits.'),
  invalid_timeout: warning(
    "An offer's maxTimeoutSeconds is not a whole number of seconds above 0.",
    'Give the seconds that a signature may be valid, such as 60.',
  ),
  wrong_domain: warning(
    "An offer's extra.name or extra.version is not the token's EIP-712 domain, so signatures fail.",
    'Copy name() and version() of the token: "USD Coin" and "2" on most production networks.',
  ),
  pays_others: error(
    'Its 402 asks for payments to other wallets than the listed one.',
    "Let the 402 name your registered wallet: check the middleware's providerId, or replace the wallet.",
  ),
  price_differs: warning(
    'Its 402 asks for another price than the one that is registered.',
    'The catalog shows the price of the 402. Register that price, or remove pricing in the middleware.',
  ),

  // The description.
  resource_elsewhere: warning(
    'Its challenge names a resource at another origin, and catalogs list that resource.',
    'Set publicUrl in the middleware to the origin that buyers call.',
  ),
  resource_differs: warning(
    'Its challenge names another path than the requested URL.',
    'Set basePath in the middleware, or register the path that buyers call.',
  ),
  resource_invalid: error(
    'The resource in its challenge is not a URL that a catalog can list.',
    'Give an absolute http(s) URL of at most 2048 characters.',
  ),
  described: asExpected('Its discovery extension can be read.'),
  not_described: warning(
    'It declares no discovery extension, so x402 catalogs list nothing.',
    'Declare the extension bazaar with declareDiscoveryExtension. Endpoints that are registered here are listed without it.',
  ),
  description_invalid: error(
    'Its discovery extension breaks the rules of x402, so catalogs reject it.',
    'Correct the named field; info must follow its schema.',
  ),
  no_description: warning(
    'Its challenge has no description, so searches find it less often.',
    'Describe in one sentence what a call returns.',
  ),
  description_too_long: error(
    'A description has over 500 characters, or a MIME type over 200.',
    'Shorten it: catalogs reject longer texts.',
  ),
  service_fields_dropped: warning(
    'Its serviceName, tags or iconUrl breaks the rules of x402, so catalogs leave it out.',
    'Give serviceName and each tag 1 to 32 ASCII characters, at most 5 tags, and iconUrl a public host.',
  ),
  no_output: warning(
    'The discovery extension does not describe the answer.',
    'Add an output example: agents use it to choose.',
  ),

  // Access by browsers and other clients.
  browsers_can_pay: asExpected('Pages of other origins can pay.'),
  no_cors: warning(
    'Pages of other origins cannot read the answer (Access-Control-Allow-Origin).',
    'Send Access-Control-Allow-Origin: *',
  ),
  headers_not_exposed: warning(
    'Pages of other origins cannot read PAYMENT-REQUIRED (Access-Control-Expose-Headers).',
    'Expose the headers of exposedHeaders from the SDK.',
  ),
  preflight_fails: warning(
    'Pages of other origins cannot send a payment, because the preflight (OPTIONS) is refused.',
    'Answer OPTIONS without payment, and allow PAYMENT-SIGNATURE, X-PAYMENT, Authorization and Content-Type.',
  ),
  head_differs: warning(
    'HEAD is served without payment, though GET asks for it.',
    'Let the middleware handle HEAD as well: buyers pay for HEAD as for GET.',
  ),

  // URLs that the gateway doesn't need to request, and answers that it can't store.
  served_here: asExpected("The gateway's own proxy serves this URL."),
  tool: asExpected('It is an MCP tool, whose URL cannot be requested.'),
  unreadable: error('The answer cannot be read or stored.', 'Compare the 402 with docs/x402.md.'),
} as const satisfies Record<string, Described>

export type FindingCode = keyof typeof table

/** All findings by their codes. */
export const sellerFindings: Readonly<Record<FindingCode, Described>> = table

/** One finding about a seller's URL. */
export type SellerFinding = {
  code: FindingCode
  severity: Severity
  /** A sentence that describes the finding. */
  message: string
  /** A sentence that says how to correct it; null: nothing is wrong. */
  advice: string | null
}

/** Creates a finding. @param message the exact finding. Default: the table's words. */
export function finding(code: FindingCode, message: string = table[code].means): SellerFinding {
  const { severity, advice } = table[code]
  return { code, severity, message, advice }
}

/** Returns the advice on a stored finding; null for a code that isn't in the table. */
export function adviceOn(code: string | null): string | null {
  return code !== null && Object.hasOwn(table, code) ? table[code as FindingCode].advice : null
}
