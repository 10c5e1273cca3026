import { HTTPFacilitatorClient, x402ResourceServer } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { withX402 } from '@x402/next'
import { NextResponse } from 'next/server'

const { FACILITATOR_URL, API_KEY, PAY_TO } = process.env
const headers = { Authorization: `Bearer ${API_KEY}` }
const facilitator = new HTTPFacilitatorClient({
  url: FACILITATOR_URL,
  createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
})

export const GET = withX402(
  async () => NextResponse.json({ weather: 'sunny' }),
  {
    accepts: { scheme: 'exact', price: '$0.01', network: 'eip155:84532', payTo: PAY_TO },
    description: 'The weather',
  },
  new x402ResourceServer(facilitator).register('eip155:84532', new ExactEvmScheme()),
)
