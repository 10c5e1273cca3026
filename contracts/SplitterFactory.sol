// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Reason} from "./Reason.sol";
import {Splitter} from "./Splitter.sol";
import {ISplitter} from "./interfaces/ISplitter.sol";
import {ISplitterFactory} from "./interfaces/ISplitterFactory.sol";

/// @title SplitterFactory
/// @notice See ISplitterFactory, which documents every function and event.
contract SplitterFactory is ISplitterFactory {
    /// @inheritdoc ISplitterFactory
    address public immutable IMPLEMENTATION = address(new Splitter());

    /// @inheritdoc ISplitterFactory
    function splitterOf(uint256 split, address platform, uint48 rewardShare) public view returns (address) {
        bytes memory arguments = abi.encodePacked(split, platform, rewardShare);
        return Clones.predictDeterministicAddressWithImmutableArgs(IMPLEMENTATION, arguments, 0);
    }

    /// @inheritdoc ISplitterFactory
    function deploy(uint256 split, address platform, uint48 rewardShare) external returns (address splitter) {
        splitter = splitterOf(split, platform, rewardShare);
        if (splitter.code.length == 0) _deploy(split, platform, rewardShare);
    }

    /// @inheritdoc ISplitterFactory
    function sweep(
        address token,
        address platform,
        uint48 rewardShare,
        uint256[] calldata splits,
        address rewardTo
    ) external {
        for (uint256 i; i < splits.length; ++i) {
            uint256 split = splits[i];
            address splitter = splitterOf(split, platform, rewardShare);
            if (splitter.code.length == 0) {
                uint256 balance = IERC20(token).balanceOf(splitter);
                // Where there is nothing to pay out, a deployment would be wasted.
                if (balance < uint256(uint48(split >> 48)) + uint48(split) + rewardShare) {
                    emit SweepFailed(token, splitter, abi.encodeWithSelector(ISplitter.NothingToSweep.selector, balance));
                    continue;
                }
                _deploy(split, platform, rewardShare);
            }
            bytes memory data = abi.encodeCall(ISplitter.sweep, (token, rewardTo));
            bool success;
            assembly ("memory-safe") {
                success := call(gas(), splitter, 0, add(data, 0x20), mload(data), 0, 0)
            }
            if (!success) emit SweepFailed(token, splitter, Reason.read());
        }
    }

    function _deploy(uint256 split, address platform, uint48 rewardShare) private {
        Clones.cloneDeterministicWithImmutableArgs(
            IMPLEMENTATION, abi.encodePacked(split, platform, rewardShare), 0
        );
    }
}
