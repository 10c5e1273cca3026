import { BaseError, HttpRequestError, SocketClosedError, TimeoutError, WebSocketRequestError } from 'viem'

// Nodes use different codes and words: one provider uses -32005 for a rate limit, another for "too many results", and a third sends "too many
// results" with status 429. So check the words first, and the code only if the words aren't clear.

/**
 * What a node's response means for the request:
 *
 * - `range`: the request covers too many blocks, or has too many or too large results. Request less.
 * - `rate`: too many requests. Send the same request later.
 * - `behind`: the node doesn't have the block yet, but another node may.
 * - `unsupported`: the node doesn't support the method or one of its parameters.
 * - `execution`: the call ran, and the contract reverted or ran out of gas.
 * - `unreachable`: the node itself did not respond.
 * - `other`: anything else.
 */
export type NodeErrorKind =
  | 'range'
  | 'rate'
  | 'behind'
  | 'unsupported'
  | 'execution'
  | 'unreachable'
  | 'other'

/** An error as a node sent it. */
export type NodeAnswer = {
  /** HTTP status. */
  status?: number
  /** JSON-RPC code. */
  code?: number
  message: string
  /** Time in ms for which the node asks the caller to wait (`Retry-After`). */
  retryAfterMs?: number
}

/** A rejection that was received without viem. */
export class NodeRefusal extends Error {
  override readonly name = 'NodeRefusal'
  readonly answer: NodeAnswer

  constructor(answer: NodeAnswer) {
    super(answer.message)
    this.answer = answer
  }
}

export type NodeError = {
  kind: NodeErrorKind
  /** For `range`: the maximum number of blocks that the node accepts, if it reports one. */
  blocks?: bigint
  /** For `rate`: time in ms for which the node asks the caller to wait. */
  retryAfterMs?: number
}

/** The words that large providers use for too many requests. */
const rateWords =
  /rate.?limit|limit(s|ed)? (of )?(the )?rate|rate exceeded|over rate|too many (requests|calls|connections)|(requests?|calls?)[ /]+(count|limit|rate|quota|per|allowed)|request limit|(per|\/) ?(second|sec|minute|min|hour|day|month)\b|throughput|compute units?|capacity (exceeded|limit)|quota|credits?\b|daily|monthly|throttl|slow down|(retry|try again) (in|after|later)|usage limit|no backend is currently healthy|server is busy|temporarily (unavailable|banned|blocked)/i

/** The words for a range that is too long, or results that are too many or too large. */
const rangeWords =
  /\brange\b|\btoo many (blocks|results|logs|events|records)|more than [\d,._]+k? (results|logs|events|blocks|records)|(max(imum)?|exceed\w*|limit\w*|over|up to|at most|within|than)\W+(\w+\W+){0,6}(blocks|results|logs|events|block distance|response size|result size)\b|(results?|logs?|blocks?|response|body|payload|query)\W+(\w+\W+){0,6}(exceed\w*|too (large|big|long|many|wide)|limit\w*|larger|smaller|greater)|blocks?,? distance|(query|execution|request) time(d )?out|request entity too large|narrow|reduce the (number|block)/i

/** Words that contain "range", but mean that a block isn't available yet. */
const behindWords =
  /header not found|unknown block|block (\S+ )?(is )?(not (found|available( yet)?|yet)|unavailable|doesn'?t exist|could not be found|cannot be found)|\bnot available yet|not yet available|cannot be found|(after|beyond|above|greater than|ahead of|past|higher than) (the )?(\w+ )?(current |latest |chain )?(head|tip|latest block)|(is in the|a) future|(is )?after (the )?last accepted|block number out of range|missing (block|header)|not (been )?(yet )?(mined|indexed|synced|produced)|still syncing/i

const unsupportedWords =
  /too many (\w+ )?(arguments|params|parameters)|want at most|expected (at most |between )?\d( (to|and) \d)? (arguments|params|parameters)|\boverrides?\b.*(not |un|disabled|disallowed|forbidden|rejected)|(third|3rd|extra|unexpected|additional) (\w+ )?(argument|param|parameter)|(not|un)\W*(supported|available|allowed|implemented|whitelisted)\b|does not (exist|support)|method not found|unknown (field|method|argument|parameter)|invalid (number of )?(arguments?|params|parameters|length \d)/i

const executionWords =
  /revert|out of gas|gas required exceeds|invalid opcode|invalid jump|bad jump|stack (over|under)flow|stack limit|vm exception|vm execution error|write protection|static (state )?(call|change)|execution (failed|error)|bad instruction|undefined instruction|return data out of bounds|gas uint64 overflow|max call depth|contract size/i

// Codes of QuickNode, Ankr, Cloudflare, publicnode and dRPC. No provider uses them with another meaning.
const rangeCodes = new Set([35, -32_614, -32_615, -32_062, -32_701, -32_047])
const rateCodes = new Set([429, -32_005, -32_029, -32_007, -32_090, -32_097, -32_016, 15, 19])

/**
 * Returns the meaning of a response. The request's method isn't needed, because words about ranges never appear in errors about contracts.
 */
export function readNodeAnswer(answer: NodeAnswer): NodeError {
  const { status, code, message, retryAfterMs } = answer
  const wait = retryAfterMs ?? readWait(message)
  const rate: NodeError = { kind: 'rate', ...(wait !== undefined && { retryAfterMs: wait }) }
  // Check for a revert first: the contract chooses the words of its revert, and they could look like a rate limit.
  if (code === 3 || /\brevert(ed)?\b/i.test(message)) return { kind: 'execution' }
  if (behindWords.test(message) && !/pruned|history/i.test(message)) return { kind: 'behind' }
  const isRange = rangeWords.test(message)
  const isRate = rateWords.test(message)
  // "10 block range on the free plan, 5 requests per second" matches a range and a rate, so the status decides.
  if (isRange && isRate) return status === 429 || code === 429 ? rate : readRange(message)
  if (isRate) return rate
  if (isRange && !executionWords.test(message)) return readRange(message)
  if (status === 413) return readRange(message)
  if (code !== undefined && rangeCodes.has(code)) return readRange(message)
  if (status === 429 || (code !== undefined && rateCodes.has(code))) return rate
  if (executionWords.test(message)) return { kind: 'execution' }
  if (unsupportedWords.test(message) || code === -32_601 || code === -32_004) return { kind: 'unsupported' }
  if (status !== undefined && status >= 500) return { kind: 'unreachable' }
  return { kind: 'other' }
}

function readRange(message: string): NodeError {
  const blocks = readBlocks(message)
  return { kind: 'range', ...(blocks !== undefined && { blocks }) }
}

/** Returns the maximum number of blocks that a rejection suggests, as a number or by an example range such as `[0x1, 0x7d0]`. */
function readBlocks(message: string): bigint | undefined {
  const pair = /\[\s*(0x[0-9a-f]{1,16}|\d{1,15}),\s*(0x[0-9a-f]{1,16}|\d{1,15})\s*\]/i.exec(message)
  if (pair) {
    const [from, to] = [BigInt(pair[1] ?? 0), BigInt(pair[2] ?? 0)]
    if (to >= from) return to - from + 1n
  }
  // Remove the method's name, because it contains "logs". Numbers of results or bytes are not numbers of blocks.
  const words = message.replace(/eth_getLogs/gi, '')
  if (/results|logs|events|records|bytes|size/i.test(words) && !/block/i.test(words)) return undefined
  const patterns = [
    /up to (?:a |an )?([\d,._]+k?)[ -]blocks?/i,
    /limited to (?:a |an |0 ?- ?)?([\d,._]+k?)/i,
    /(?:exceeds?|over|greater than|larger than|more than) (?:the )?(?:\w+ ){0,3}(?:limit|max(?:imum)?)(?: of)?:? ([\d,._]+k?)/i,
    /max(?:imum)?(?:\W+\w+){0,6}?\W+([\d,._]+k?)\b/i,
    /(?:at most|allowed is|allowed:?|set to|limit(?: is| of)?:?|than|over|exceeds?) ([\d,._]+k?)(?: blocks?| max|\b)/i,
    /distance:? ([\d,._]+k?)/i,
    /\(\d+ > (\d+)\)/,
  ]
  for (const pattern of patterns) {
    const found = readCount(pattern.exec(message)?.[1])
    if (found !== undefined && found > 0n) return found
  }
  return undefined
}

function readCount(text: string | undefined): bigint | undefined {
  const match = /^([\d,._]*\d)[,._]?(k?)$/i.exec(text ?? '')
  if (match === null) return undefined
  const digits = (match[1] ?? '').replace(/[,._]/g, '')
  return digits.length > 12 ? undefined : BigInt(digits) * (match[2] ? 1_000n : 1n)
}

/** Reads a wait such as "retry in 10s" or "try again in 500 ms". Returns it in ms. */
function readWait(message: string): number | undefined {
  const match =
    /(?:retry|try again|wait)\w* (?:in|after|for)?:? ?(\d{1,6}(?:\.\d{1,3})?) ?(ms|milliseconds?|s|secs?|seconds?|m|min|minutes?)\b/i.exec(
      message,
    )
  if (match === null) return undefined
  const [, amount = '', unit = ''] = match
  const factor = /^ms|milli/i.test(unit) ? 1 : /^s/i.test(unit) ? 1_000 : 60_000
  return Math.round(Number(amount) * factor)
}

/** Returns the meaning of an error of viem, or of a {@link NodeRefusal}. */
export function readNodeError(error: unknown): NodeError {
  if (error instanceof NodeRefusal) return readNodeAnswer(error.answer)
  if (!(error instanceof BaseError)) return { kind: 'other' }
  const answer = findAnswer(error)
  if (answer) {
    const read = readNodeAnswer(answer)
    // A status without the node's own words comes from a proxy in front of the node.
    if (read.kind === 'other' && answer.status !== undefined && answer.code === undefined) {
      return { kind: answer.status === 400 ? 'other' : 'unreachable' }
    }
    return read
  }
  const isUnanswered = error.walk(
    (cause) =>
      cause instanceof TimeoutError ||
      cause instanceof SocketClosedError ||
      cause instanceof WebSocketRequestError ||
      cause instanceof HttpRequestError,
  )
  return { kind: isUnanswered ? 'unreachable' : 'other' }
}

/** Returns the innermost response in an error of viem: a JSON-RPC error, or an HTTP status and its body. */
function findAnswer(error: BaseError): NodeAnswer | undefined {
  const http = error.walk((cause) => cause instanceof HttpRequestError)
  if (http instanceof HttpRequestError) {
    if (http.status === undefined) return undefined
    const retryAfterMs = readRetryAfter(http.headers?.get('retry-after'))
    return {
      status: http.status,
      ...(retryAfterMs !== undefined && { retryAfterMs }),
      ...readDetails(http.details),
    }
  }
  let found: NodeAnswer | undefined
  error.walk((cause) => {
    if (cause instanceof BaseError || cause instanceof Error) {
      const { code, details } = cause as { code?: unknown; details?: unknown }
      // viem uses -1 if an error has no code.
      if (typeof code === 'number' && code !== -1) {
        found = { code, message: typeof details === 'string' ? details : cause.message }
      }
    }
    return false
  })
  return found
}

/** Reads the body of an HTTP error as viem provides it: text, or the JSON of its member `error`. */
function readDetails(details: string): Pick<NodeAnswer, 'code' | 'message' | 'retryAfterMs'> {
  const body = readJson(details)
  if (typeof body !== 'object' || body === null) return { message: details }
  const { code, message, retryAfterMs } = body as Record<string, unknown>
  return {
    message: typeof message === 'string' ? message : details,
    ...(typeof code === 'number' && { code }),
    ...(typeof retryAfterMs === 'number' && { retryAfterMs }),
  }
}

/** Reads a `Retry-After` header (seconds or an HTTP date). Returns it in ms. */
export function readRetryAfter(header: string | null | undefined, now = Date.now()): number | undefined {
  const text = header?.trim()
  if (!text) return undefined
  if (/^\d{1,9}(\.\d+)?$/.test(text)) return Math.ceil(Number(text) * 1_000)
  const at = Date.parse(text)
  return Number.isNaN(at) ? undefined : Math.max(0, at - now)
}

/**
 * A handler for viem's `http(url, { onFetchResponse })` that keeps parts of a rejection which viem drops. If the body is a JSON-RPC error, viem drops
 * the status and the headers, including `Retry-After`. If a batch is rejected, viem drops the body.
 */
export async function keepRefusal(response: Response): Promise<void> {
  if (response.ok) return
  const { url, status } = response
  const body = readJson(await response.clone().text())
  if (status !== 429 && !Array.isArray(body)) return
  const retryAfterMs = readRetryAfter(response.headers.get('retry-after'))
  const refusal = { ...readErrorOf(body), ...(retryAfterMs !== undefined && { retryAfterMs }) }
  // Leave out the header `Retry-After`: viem would wait for that time within the request, however long it is.
  throw new HttpRequestError({ url, status, details: JSON.stringify(refusal) })
}

/** Returns the value of a JSON text, or the text itself if it isn't JSON. */
function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

function readErrorOf(body: unknown): { code?: number; message: string } {
  const replies: unknown[] = Array.isArray(body) ? body : [body]
  const errors = replies.flatMap((reply) => {
    const error = typeof reply === 'object' && reply !== null && 'error' in reply ? reply.error : undefined
    return error === undefined ? [] : [error]
  })
  const [error = body] = errors
  return readDetails(typeof error === 'string' ? error.slice(0, 1_000) : JSON.stringify(error))
}
