import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { HTTPException } from 'hono/http-exception'
import { ContractFunctionExecutionError, HttpRequestError, RpcRequestError } from 'viem'
import { expect, test } from 'vitest'
import { ChainUnavailable } from './dependencies.ts'
import { toCodedError } from './problem.ts'

const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
const noAnswer = new HttpRequestError({ url: 'http://node.example' })
const call = { abi: usdcAbi, functionName: 'paused' } as const

test.each([
  ['a database that refuses connections', refused, 'dependency_unavailable', 'database'],
  [
    'a database that refuses connections on each of its addresses',
    new AggregateError([refused]),
    'dependency_unavailable',
    'database',
  ],
  ['a node that is not responding', noAnswer, 'dependency_unavailable', 'rpc'],
  [
    'a node that is not responding to a contract call',
    new ContractFunctionExecutionError(noAnswer, call),
    'dependency_unavailable',
    'rpc',
  ],
  [
    'a call to several nodes of which not all respond',
    new ChainUnavailable('1 of 2'),
    'dependency_unavailable',
    'rpc',
  ],
  ['a body that is too large', new HTTPException(413), 'payload_too_large', undefined],
  ['an error that has a code', new BaseError('unknown_wallet'), 'unknown_wallet', undefined],
  [
    'a node’s response with an error',
    new RpcRequestError({ body: {}, url: 'http://node.example', error: { code: 3, message: 'reverted' } }),
    'internal_error',
    undefined,
  ],
  ['any other error', new TypeError('x is undefined'), 'internal_error', undefined],
])('behavior: converts %s to an error with the right code', (_, error, code, dependency) => {
  expect(toCodedError(error)).toMatchObject({ code, details: dependency === undefined ? {} : { dependency } })
})
