// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";

/// @title The functions of USDC that show whether a payer's authorization can be settled
interface IPayerState is IERC20, IERC3009 {
    function isBlacklisted(address account) external view returns (bool);
    function paused() external view returns (bool);
}

/// @title PayerReads
/// @notice Reads in one call, at one block, everything that decides whether the payments of many payers can be settled.
/// @dev Never deployed: packages/chain/chainReads.ts sends the code with its `eth_call`.
contract PayerReads {
    struct Payer {
        address account;
        bytes32 nonce;
        bytes32 feeNonce; // equal to `nonce` if the payment has no fee authorization
    }

    struct State {
        uint256 balance;
        bool hasCode;
        bool isBlacklisted;
        bool isNonceUsed;
        bool isFeeNonceUsed;
    }

    /// @notice Returns the state of each payer, in order, and whether the token is paused.
    function read(IPayerState token, Payer[] calldata payers)
        external
        view
        returns (bool isPaused, State[] memory states)
    {
        isPaused = token.paused();
        states = new State[](payers.length);
        for (uint256 i = 0; i < payers.length; i++) {
            Payer calldata payer = payers[i];
            states[i] = State({
                balance: token.balanceOf(payer.account),
                hasCode: payer.account.code.length > 0,
                isBlacklisted: token.isBlacklisted(payer.account),
                isNonceUsed: token.authorizationState(payer.account, payer.nonce),
                isFeeNonceUsed: payer.feeNonce != payer.nonce
                    && token.authorizationState(payer.account, payer.feeNonce)
            });
        }
    }
}
