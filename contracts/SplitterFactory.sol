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
    function splitterOf(uint256 split, address platform) public view returns (address) {
        bytes memory arguments = abi.encodePacked(split, platform);
        return Clones.predictDeterministicAddressWithImmutableArgs(IMPLEMENTATION, arguments, 0);
    }

    /// @inheritdoc ISplitterFactory
    function deploy(uint256 split, address platform) external returns (address splitter) {
        splitter = splitterOf(split, platform);
        if (splitter.code.length == 0) _deploy(split, platform);
    }

    /// @inheritdoc ISplitterFactory
    function sweep(address token, address platform, uint256[] calldata splits) external {
        for (uint256 i; i < splits.length; ++i) {
            uint256 split = splits[i];
            address splitter = splitterOf(split, platform);
            if (splitter.code.length == 0) {
                // If there is nothing to pay out, a deployment would be wasted.
                if (IERC20(token).balanceOf(splitter) == 0) continue;
                _deploy(split, platform);
            }
            bytes memory data = abi.encodeCall(ISplitter.sweep, (token));
            bool success;
            assembly ("memory-safe") {
                success := call(gas(), splitter, 0, add(data, 0x20), mload(data), 0, 0)
            }
            if (!success) emit SweepFailed(token, splitter, Reason.read());
        }
    }

    function _deploy(uint256 split, address platform) private {
        Clones.cloneDeterministicWithImmutableArgs(IMPLEMENTATION, abi.encodePacked(split, platform), 0);
    }
}
