import { NextResponse } from 'next/server'
import { withX402 } from 'x402-next'

const { FACILITATOR_URL, API_KEY, PAY_TO } = process.env
const headers = { Authorization: `Bearer ${API_KEY}` }

export const GET = withX402(
  async () => NextResponse.json({ weather: 'sunny' }),
  PAY_TO,
  { price: '$0.01', network: 'base-sepolia', config: { description: 'The weather' } },
  {
    url: FACILITATOR_URL,
    createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
  },
)
